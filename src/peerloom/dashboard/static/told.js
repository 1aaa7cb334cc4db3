// What each service has told, and of when that is while the service is away.

import { h } from "./dom.js";
import { clock } from "./words.js";

// Whether a service ever answered: before that, an empty list would be a claim.
export const wasTold = (seen, service) => Boolean(seen.services?.services[service]?.told);

export const awayNow = (seen) =>
  Object.entries(seen.services?.services ?? {})
    .filter(([, one]) => one.away_since)
    .map(([name]) => name);

// A line over what one service told, on a page that is another's; none while the service is there.
export function asOf(seen, service) {
  const one = seen.services?.services[service];
  if (!one?.away_since) return null;
  const when = one.told ? `What follows is as of ${clock(one.answered)}` : "What follows isn't known";
  return h("p", { class: "as-of" }, `${when}: the ${service} is away.`);
}
