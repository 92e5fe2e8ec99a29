import { storm } from "./storms.ts";

storm("meeting");
