// Asks for what the first view shows while the other modules of the page are still being read.

import { prefetch } from "./prefetch.js";
import { route } from "./router.js";

prefetch("session");
if (route().name === "overview") prefetch("nodes");
