/** Makes the schemas, by zod. The program loads this file when a value needs one (noted-schemas.ts). */

export {
  array,
  boolean,
  custom,
  enum,
  literal,
  looseObject,
  never,
  null,
  number,
  object,
  record,
  strictObject,
  string,
  union,
  unknown,
} from "zod";
