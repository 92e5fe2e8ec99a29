import { storm } from "./storms.ts";

storm("containers");
