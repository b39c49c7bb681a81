// Finds the packages in the folder that RILLET_NODE_MODULES names, and the server in RILLET_FRAMEWORKS_URL.
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.RILLET_NODE_MODULES, "index.js"));

export const load = (name) => require(name);
export const url = process.env.RILLET_FRAMEWORKS_URL;
export const place = () => ({ host: new URL(url).hostname, port: Number(new URL(url).port) });
