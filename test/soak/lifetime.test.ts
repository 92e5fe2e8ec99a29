import { storm } from "./storms.ts";

storm("lifetime");
