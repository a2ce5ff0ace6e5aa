/** With a real sandbox, under any runtime that has a process: prints what differs. */

import { Paddock } from "paddock";
import { WANTED, journey } from "./support/journey.js";

const found = await journey(new Paddock());
const differing = Object.keys(WANTED).filter(
  (name) => JSON.stringify(found[name]) !== JSON.stringify(WANTED[name]),
);
for (const name of differing) console.log(name, JSON.stringify(found[name]));
console.log(differing.length ? "differs" : "as wanted");
