// Rounds: work and scores, from training to training.
import { getJson } from "./api.js";
import { byId, make } from "./state.js";

export async function showRounds() {
  const rounds = await getJson("/api/rounds");
  const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
  byId("rounds").replaceChildren(...rounds.map((one) => {
    const cells = [
      one.labels, one.drafts, one.minutes.toFixed(1), one.pixels === null ? "–" : Math.round(one.pixels).toLocaleString(),
      one.run ?? "not trained yet", percent(one.scores?.val), percent(one.scores?.test),
    ];
    return make("tr", {}, make("th", { textContent: one.round }), ...cells.map((text) => make("td", { textContent: text })));
  }));
}
