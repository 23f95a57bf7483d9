// Asks for what the first view shows while the other modules of the page are still being read.

import { prefetch } from "./prefetch.js";
import { route } from "./router.js";
import { hasSession, lacksSession } from "./session_note.js";

if (!lacksSession()) prefetch("session");
if (hasSession() && route().name === "overview") prefetch("nodes");
