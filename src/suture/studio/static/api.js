// Requests to the server, and the code of masks: width, height, then `length << 8 | id` of each run.

export class ServerError extends Error {}

async function request(path, options = {}) {
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  const text = await answer.text();
  let message = text;
  try {
    const content = JSON.parse(text);
    message = content.message ?? JSON.stringify(content.detail);
  } catch { /* plain text */ }
  throw new ServerError(message || `The server answered ${answer.status}.`);
}

export const getJson = async (path) => (await request(path)).json();

export async function send(method, path, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await request(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.headers.get("Content-Type")?.startsWith("application/json") ? answer.json() : answer.arrayBuffer();
}

export const putBytes = async (path, body) =>
  (await request(path, { method: "PUT", body, headers: { "Content-Type": "application/octet-stream" } })).json();

export async function getBlob(path, signal) {
  return (await request(path, { signal })).blob();
}

// A mask as { width, height, ids }; null if there is none.
export async function getMask(path) {
  const answer = await request(path);
  return answer.status === 204 ? null : unpackRuns(await answer.arrayBuffer());
}

export function unpackRuns(buffer) {
  const numbers = new Uint32Array(buffer);
  const [width, height] = numbers;
  const ids = new Uint8Array(width * height);
  let place = 0;
  for (let i = 2; i < numbers.length; i++) {
    const length = numbers[i] >>> 8;
    ids.fill(numbers[i] & 255, place, place + length);
    place += length;
  }
  return { width, height, ids };
}

export function packRuns({ width, height, ids }) {
  const numbers = [width, height];
  let start = 0;
  for (let i = 1; i <= ids.length; i++) {
    if (i === ids.length || ids[i] !== ids[start]) {
      numbers.push(((i - start) << 8 | ids[start]) >>> 0);
      start = i;
    }
  }
  return new Uint32Array(numbers);
}

export function toBase64(array) {
  const bytes = new Uint8Array(array.buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
