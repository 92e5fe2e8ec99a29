/** The interfaces of models, as far as the names of providers and models show them. */

const APIS: Readonly<Record<string, string>> = {
  anthropic: "anthropic-messages",
  openai: "openai-responses",
  google: "google-generative-ai",
  "google-vertex": "google-vertex",
  "amazon-bedrock": "bedrock-converse-stream",
};

/** Returns the interface of a provider; for one that has models of many makers, that of the model. */
export function getApi(provider: string, model: string): string {
  if (Object.hasOwn(APIS, provider)) return APIS[provider];
  if (provider !== "github-copilot") return "openai-completions";
  if (model.startsWith("claude-")) return "anthropic-messages";
  return /^gpt-5|^o\d/.test(model) ? "openai-responses" : "openai-completions";
}
