// Mask: the class ids of a frame, the shapes that change them, and undo.

const MAX_UNDO = 100;

export class Mask {
  constructor(width, height, ids) {
    this.width = width;
    this.height = height;
    this.ids = ids;
    this.undone = [];
    this.done = [];
    this.before = null; // ids at the start of a stroke
    this.rect = null; // what the stroke has touched
  }

  static blank(width, height, id) {
    return new Mask(width, height, new Uint8Array(width * height).fill(id));
  }

  begin() {
    this.before = this.ids.slice();
    this.rect = null;
  }

  // Ends a stroke; true if it changed anything.
  end() {
    const { before, rect } = this;
    this.before = this.rect = null;
    if (!before || !rect) return false;
    const patch = { rect, before: this.crop(before, rect), after: this.crop(this.ids, rect) };
    if (patch.before.every((id, i) => id === patch.after[i])) return false;
    this.done.push(patch);
    this.done.splice(0, this.done.length - MAX_UNDO);
    this.undone = [];
    return true;
  }

  undo() {
    return this.step(this.done, this.undone, "before");
  }

  redo() {
    return this.step(this.undone, this.done, "after");
  }

  step(from, to, which) {
    const patch = from.pop();
    if (!patch) return null;
    to.push(patch);
    const { x, y, width, height } = patch.rect;
    for (let row = 0; row < height; row++) {
      this.ids.set(patch[which].subarray(row * width, (row + 1) * width), (y + row) * this.width + x);
    }
    return patch.rect;
  }

  // A thick line from one point to another; returns the rectangle that it touches.
  line(x0, y0, x1, y1, radius, id) {
    const rect = this.clip(Math.min(x0, x1) - radius, Math.min(y0, y1) - radius, Math.max(x0, x1) + radius, Math.max(y0, y1) + radius);
    const dx = x1 - x0, dy = y1 - y0, length = dx * dx + dy * dy, reach = radius * radius;
    for (let y = rect.y; y < rect.y + rect.height; y++) {
      for (let x = rect.x; x < rect.x + rect.width; x++) {
        const px = x + 0.5 - x0, py = y + 0.5 - y0;
        const along = length ? Math.min(1, Math.max(0, (px * dx + py * dy) / length)) : 0;
        const ex = px - along * dx, ey = py - along * dy;
        if (ex * ex + ey * ey <= reach) this.ids[y * this.width + x] = id;
      }
    }
    return this.touch(rect);
  }

  polygon(points, id) {
    const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
    const rect = this.clip(Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys));
    for (let y = rect.y; y < rect.y + rect.height; y++) {
      const middle = y + 0.5, crossings = [];
      points.forEach(([ax, ay], i) => {
        const [bx, by] = points[(i + 1) % points.length];
        if ((ay <= middle) !== (by <= middle)) crossings.push(ax + (middle - ay) / (by - ay) * (bx - ax));
      });
      crossings.sort((a, b) => a - b);
      for (let i = 0; i + 1 < crossings.length; i += 2) {
        const from = Math.max(0, Math.ceil(crossings[i] - 0.5)), to = Math.min(this.width, Math.ceil(crossings[i + 1] - 0.5));
        if (to > from) this.ids.fill(id, y * this.width + from, y * this.width + to);
      }
    }
    return this.touch(rect);
  }

  // The connected area of one class around a point.
  fill(x, y, id) {
    const { width, height, ids } = this;
    const old = ids[y * width + x];
    if (old === id) return null;
    let [left, top, right, bottom] = [x, y, x, y];
    const waiting = [y * width + x];
    while (waiting.length) {
      const place = waiting.pop();
      if (ids[place] !== old) continue;
      const row = Math.floor(place / width), first = row * width;
      let from = place, to = place;
      while (from > first && ids[from - 1] === old) from--;
      while (to < first + width - 1 && ids[to + 1] === old) to++;
      ids.fill(id, from, to + 1);
      [left, right, top, bottom] = [Math.min(left, from - first), Math.max(right, to - first), Math.min(top, row), Math.max(bottom, row)];
      for (const next of [-width, width]) {
        if ((next < 0 && row === 0) || (next > 0 && row === height - 1)) continue;
        for (let i = from; i <= to; i++) {
          if (ids[i + next] === old && (i === from || ids[i + next - 1] !== old)) waiting.push(i + next);
        }
      }
    }
    return this.touch({ x: left, y: top, width: right - left + 1, height: bottom - top + 1 });
  }

  // Every pixel for which a function of its place returns an id; undefined leaves it.
  replace(idAt) {
    for (let i = 0; i < this.ids.length; i++) this.ids[i] = idAt(i) ?? this.ids[i];
    return this.touch({ x: 0, y: 0, width: this.width, height: this.height });
  }

  clip(x0, y0, x1, y1) {
    const x = Math.max(0, Math.floor(x0)), y = Math.max(0, Math.floor(y0));
    return { x, y, width: Math.max(0, Math.min(this.width, Math.ceil(x1) + 1) - x), height: Math.max(0, Math.min(this.height, Math.ceil(y1) + 1) - y) };
  }

  touch(rect) {
    const old = this.rect;
    if (!old) this.rect = { ...rect };
    else {
      const x = Math.min(old.x, rect.x), y = Math.min(old.y, rect.y);
      this.rect = { x, y, width: Math.max(old.x + old.width, rect.x + rect.width) - x, height: Math.max(old.y + old.height, rect.y + rect.height) - y };
    }
    return rect;
  }

  crop(ids, { x, y, width, height }) {
    const part = new Uint8Array(width * height);
    for (let row = 0; row < height; row++) {
      const start = (y + row) * this.width + x;
      part.set(ids.subarray(start, start + width), row * width);
    }
    return part;
  }
}
