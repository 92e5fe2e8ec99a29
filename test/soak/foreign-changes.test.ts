import { storm } from "./storms.ts";

storm("foreign-changes");
