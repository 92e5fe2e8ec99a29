/**
 * Finds tokens by their beginnings. Beginnings, characters and lengths are facts that their issuers publish; each line
 * names the source. A token is the whole run of its characters, so that every search is linear.
 */

interface TokenRule {
  readonly kind: string;
  /** Beginnings of tokens; case counts. */
  readonly begins: readonly string[];
  /** The characters after that. */
  readonly of: Charset;
  /** The fewest of them. */
  readonly least: number;
  /** The largest number of them, if the beginning alone is weak evidence. */
  readonly most: number | undefined;
  /** A shape that the part after the beginning must have. */
  readonly shape: RegExp | undefined;
  readonly source: string;
}

const CHARSETS = {
  hex: /[0-9a-fA-F]/,
  upper: /[A-Z2-7]/,
  letters: /[A-Za-z0-9]/,
  word: /[A-Za-z0-9_]/,
  dashed: /[A-Za-z0-9_-]/,
  dotted: /[A-Za-z0-9_.=-]/,
  base64: /[A-Za-z0-9+/=_-]/,
  path: /[A-Za-z0-9+/=_.@-]/,
  hash: /[A-Za-z0-9+/=.$,]/,
  scheme: /[A-Za-z0-9+/=.$,:]/,
} as const;

type Charset = keyof typeof CHARSETS;

/** Longest tokens whose shape is compared. */
const SHAPED = 16_384;
const MOST_TRIES = 8;
/** The sources of the less known tokens. */
const LISTED = "their issuers, and the lists of gitleaks, trufflehog and kingfisher";
const MIXED = String.raw`^(?=.*\d)(?=.*[A-Za-z]).*[A-Za-z0-9]{16}`;

/**
 * Rows of kind, beginnings, characters, fewest and most of them, source, and a shape. The last ones of private keys
 * lack the lines around them.
 */
const RULES: readonly TokenRule[] = String.raw`
github_token  ghp_ gho_ ghu_ ghs_ ghr_  letters  36  docs.github.com: token formats
github_token  github_pat_  word  36  docs.github.com: token formats
gitlab_token  glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct- glwt-  dotted  20  docs.gitlab.com: token prefixes
anthropic_key  sk-ant-  dashed  32  docs.anthropic.com: API keys
openrouter_key  sk-or-  dashed  32  openrouter.ai: authentication
openai_key  sk-proj- sk-svcacct- sk-admin- sk-None-  dashed  32  platform.openai.com: API keys
langfuse_key  sk-lf-  dashed  32  langfuse.com: API keys
api_key_sk  sk-  dashed  20  the form of OpenAI's keys, which many take over  ${MIXED}
google_api_key  AIza  dashed  35-39  cloud.google.com: API keys
google_oauth_token  ya29.  dotted  20  developers.google.com: OAuth tokens
google_oauth_token  1//0  dashed  40  developers.google.com: refresh tokens
google_client_secret  GOCSPX-  dashed  20  developers.google.com: client secrets
aws_access_key  AKIA ASIA ABIA ACCA  upper  16-16  docs.aws.amazon.com: unique identifiers
aws_bedrock_key  ABSK  base64  80  docs.aws.amazon.com: Bedrock API keys
alibaba_key  LTAI  letters  12-24  alibabacloud.com: AccessKey pairs
slack_token  xoxb- xoxp- xoxa- xoxo- xoxr- xoxs- xoxc- xoxd- xapp-  dotted  20  api.slack.com: token types
slack_token  xoxe. xoxe-  dotted  20  api.slack.com: token rotation
slack_webhook  hooks.slack.com/  path  30  api.slack.com: incoming webhooks
discord_webhook  discord.com/api/webhooks/ discordapp.com/api/webhooks/  path  40  discord.com/developers: webhooks
teams_webhook  webhook.office.com/  path  40  learn.microsoft.com: incoming webhooks
stripe_key  sk_live_ sk_test_ sk_prod_ sk_org_live_ rk_live_ rk_test_ rk_prod_  dashed  16  docs.stripe.com: API keys
stripe_webhook_secret  whsec_  base64  24  docs.stripe.com: webhook signatures
npm_token  npm_  letters  36  docs.npmjs.com: access tokens
pypi_token  pypi-AgE  dashed  50  pypi.org/help: API tokens
rubygems_key  rubygems_  hex  48  guides.rubygems.org: API key scopes
sonar_token  sqp_ squ_ sqa_  hex  40  docs.sonarsource.com: tokens
nuget_key  oy2  letters  43-43  learn.microsoft.com/nuget: API keys
crates_token  cio  letters  32-32  crates.io: tokens
clojars_token  CLOJARS_  hex  60  github.com/clojars: deploy tokens
huggingface_token  hf_ api_org_  letters  30  huggingface.co/docs: user access tokens
groq_key  gsk_  letters  40  console.groq.com: keys
xai_key  xai-  word  60  docs.x.ai: keys
perplexity_key  pplx-  letters  40  docs.perplexity.ai: keys
replicate_token  r8_  letters  36  replicate.com/docs: API tokens
nvidia_key  nvapi-  dashed  40  docs.api.nvidia.com: keys
cerebras_key  csk-  letters  40  inference-docs.cerebras.ai: keys
elevenlabs_key  sk_  hex  32  elevenlabs.io/docs: API keys
langsmith_key  lsv2_pt_ lsv2_sk_ ls__  word  32  docs.smith.langchain.com: API keys
pinecone_key  pcsk_  word  40  docs.pinecone.io: API keys
tavily_key  tvly-  dashed  20  docs.tavily.com: API keys  ${MIXED}
together_key  tgp_v1_  dashed  32  docs.together.ai: API keys
e2b_key  e2b_  hex  40  e2b.dev/docs: API keys
sendgrid_key  SG.  dotted  60  docs.sendgrid.com: API keys  ^[\w-]{16,32}\.[\w-]{30,}
brevo_key  xkeysib-  dashed  64  developers.brevo.com: API keys
resend_key  re_  word  20-40  resend.com/docs: API keys  ^\w{8}_\w{20,}$
mailgun_key  key-  hex  32-32  documentation.mailgun.com: API keys
twilio_key  SK  hex  32-32  twilio.com/docs: API keys
digitalocean_token  dop_v1_ doo_v1_ dor_v1_  hex  40  docs.digitalocean.com: API tokens
shopify_token  shpat_ shpca_ shppa_ shpss_ shpua_ shptka_  letters  32  shopify.dev: access tokens
square_token  sq0atp- sq0csp- sq0idp-  dashed  20  developer.squareup.com: access tokens
databricks_token  dapi dose  hex  32-32  docs.databricks.com: personal access tokens
docker_token  dckr_pat_ dckr_oat_  dashed  20  docs.docker.com: access tokens
vault_token  hvs. hvb. hvr.  dashed  20  developer.hashicorp.com/vault: tokens
terraform_token  atlasv1.  dashed  50  developer.hashicorp.com/terraform: API tokens
grafana_token  glc_ glsa_  base64  32  grafana.com/docs: service accounts
linear_key  lin_api_ lin_oauth_  word  32  linear.app/developers: API keys
notion_token  ntn_  letters  40  developers.notion.com: authorization
notion_token  secret_  letters  43-43  developers.notion.com: authorization
figma_token  figd_ figo_ figp_ figu_ figoh_ figor_ figuh_ figur_  dashed  36  figma.com/developers: access tokens
vercel_token  vcp_ vci_ vca_ vcr_ vck_  letters  20  vercel.com/docs: tokens
netlify_token  nfp_ nfc_  letters  36  docs.netlify.com: access tokens
heroku_key  HRKU-  dashed  36  devcenter.heroku.com: authentication
postman_key  PMAK-  dashed  50  learning.postman.com: API keys
newrelic_key  NRAK- NRJS- NRII- NRIQ- NRBR-  dashed  19  docs.newrelic.com: API keys
sentry_token  sntrys_ sntryu_ sntrya_  base64  40  docs.sentry.io: auth tokens
doppler_token  dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.  dotted  36  docs.doppler.com: token formats
pulumi_token  pul-  hex  40  pulumi.com/docs: access tokens
planetscale_token  pscale_tkn_ pscale_pw_ pscale_oauth_  dotted  30  planetscale.com/docs: tokens
flyio_token  fo1_ fm1_ fm2_ fm1r_ fm1a_  base64  40  fly.io/docs: access tokens
supabase_key  sbp_  hex  40  supabase.com/docs: access tokens
supabase_key  sb_secret_  dashed  20  supabase.com/docs: API keys
age_key  AGE-SECRET-KEY-1  letters  50  age-encryption.org/v1
adafruit_key  aio_  letters  28-28  io.adafruit.com: API
atlassian_token  ATATT3 ATCTT3 ATBB ATTA BBDC-  base64  28  support.atlassian.com: API tokens
dynatrace_token  dt0c01. dt0s01. dt0s02. dt0s16.  dotted  60  docs.dynatrace.com: token format
easypost_key  EZAK EZTK  letters  54  docs.easypost.com: authentication
flutterwave_key  FLWSECK- FLWSECK_TEST-  dashed  12  developer.flutterwave.com: API keys
contentful_token  CFPAT-  dashed  40  contentful.com/developers: tokens
openshift_token  sha256~  dashed  43-43  docs.openshift.com: OAuth tokens
prefect_key  pnu_ pnb_  letters  36  docs.prefect.io: API keys
readme_key  rdme_  letters  60  docs.readme.com: API keys
shippo_token  shippo_live_ shippo_test_  hex  40  docs.goshippo.com: authentication
tailscale_key  tskey-  dashed  20  tailscale.com/kb: key prefixes
onepassword_token  ops_eyJ  base64  80  developer.1password.com: service accounts
artifactory_key  AKCp cmVmd  letters  59  jfrog.com/help: API keys
sourcegraph_token  sgp_ sgph_  word  40  sourcegraph.com/docs: access tokens
buildkite_token  bkua_ bkat_  letters  40  buildkite.com/docs: API tokens
circleci_token  CCIPAT_ CCIPRJ_  word  40  circleci.com/docs: API tokens
frameio_token  fio-u-  dashed  40  developer.frame.io: tokens
airtable_token  pat  dotted  70-79  airtable.com/developers: tokens  ^[A-Za-z0-9]{14}\.[0-9a-f]{64}$
llamacloud_key  llx-  letters  40  docs.cloud.llamaindex.ai: API keys
google_api_key  AQ.Ab8  dashed  30  ai.google.dev: auth keys
google_oauth_code  4/0A  dashed  40  developers.google.com: OAuth codes
hubspot_token  pat-na1- pat-na2- pat-na3- pat-eu1- pat-ap1-  dashed  36  developers.hubspot.com: private apps
dropbox_token  sl. sl.u.  dotted  90  dropbox.com/developers: short-lived tokens
discord_token  mfa.  dashed  80  discord.com/developers: user tokens
gitlab_token  glrtr- GR1348941  dashed  20  docs.gitlab.com: runner registration
gitlab_token  _gitlab_session=  letters  20  docs.gitlab.com: token prefixes
instagram_token  IGQV IGAA  dashed  80  developers.facebook.com: Instagram
jina_key  jina_  dashed  40  jina.ai: API keys
fireworks_key  fw_  letters  20  docs.fireworks.ai: API keys  ${MIXED}
firecrawl_key  fc-  hex  32-32  docs.firecrawl.dev: API keys
runpod_key  rpa_  letters  38  docs.runpod.io: API keys
brevo_key  xsmtpsib-  dashed  64  developers.brevo.com: SMTP keys
mailersend_token  mlsn.  hex  60  developers.mailersend.com: API tokens
posthog_key  phx_ phs_  word  40  posthog.com/docs: personal API keys
render_key  rnd_  letters  26  api-docs.render.com: API keys
voyage_key  pa-  dashed  40  docs.voyageai.com: API keys  ${MIXED}
brave_key  BSA  dashed  27-28  api.search.brave.com: keys  ${MIXED}
wallet_key  xprv yprv zprv tprv  letters  100  BIP 32
nostr_key  nsec1  letters  58-58  NIP-19
plaid_token  access-sandbox- access-development- access-production-  dashed  36  plaid.com/docs: tokens
wakatime_key  waka_  dashed  36  wakatime.com/developers: API keys
context7_key  ctx7sk-  dashed  32  context7.com: API keys
amazon_mws_token  amzn.mws.  dashed  36  developer.amazonservices.com: auth tokens
amazon_client_secret  amzn1.oa2-cs.v1.  hex  60  developer.amazon.com: client secrets
aws_session_token  IQoJb3JpZ2lu FwoGZXIvYXdz  base64  80  docs.aws.amazon.com: temporary credentials
vercel_token  vercel_blob_rw_  word  30  vercel.com/docs: Blob
typeform_token  tfp_  dashed  40  typeform.com/developers: tokens
xendit_key  xnd_production_ xnd_development_  dashed  30  docs.xendit.co: API keys
ory_token  ory_pat_ ory_at_ ory_rt_ ory_st_  dashed  30  ory.sh/docs: tokens
wandb_key  wandb_v1_  dashed  40  docs.wandb.ai: API keys
cursor_key  crsr_ key_  hex  60  cursor.com/docs: API keys
azure_devops_token  AZDO  letters  70  learn.microsoft.com: personal access tokens
bedrock_key  bedrock-api-key-  base64  60  docs.aws.amazon.com: Bedrock API keys
razorpay_key  rzp_live_ rzp_test_  letters  14-14  razorpay.com/docs: API keys
api_key_pk  pk_  word  34  clickup.com/api: personal tokens; developers.klaviyo.com: private keys  ^\d{6,9}_[A-Z0-9]{32}$|^(?:[A-Za-z0-9]{6}_)?[0-9a-f]{34}$
grafana_token  eyJrIjoi  base64  60  grafana.com/docs: API keys
authress_key  sc_ ext_ scauth_ authress_  path  40  authress.io: access keys  ^[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-]
octopus_key  API-  letters  25-34  octopus.com/docs: API keys  ^(?=.*\d)(?=.*[A-Z])[A-Z\d]+$
clickhouse_key  4b1d  letters  38-38  clickhouse.com/docs: API keys
okta_token  00  dashed  40-40  developer.okta.com: API tokens  ^(?=.*[A-Z])(?=.*[a-z])(?=.*\d)
jenkins_token  11  hex  32-32  jenkins.io: API tokens  [a-f]
launchdarkly_key  api- sdk- rh-api-  dashed  36-36  launchdarkly.com/docs: keys  ^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$
payment_key  live_ test_ sandbox_  base64  30  docs of GoCardless, Mollie, Lob, MessageBird: API keys  ^(?=.*\d.*[A-Za-z]\d).*(?:[A-Za-z]\d[A-Za-z]*|\d[A-Za-z]+){3}.*(?<=[A-Za-z\d]{14})
stripe_client_secret  pi_ seti_  word  40  docs.stripe.com: client secrets  ^[A-Za-z0-9]{14,}_secret_
braintree_token  access_token$production$ access_token$sandbox$  hash  40  developer.paypal.com/braintree: access tokens
swarm_token  SWMTKN-1- SWMKEY-1-  base64  40  docs.docker.com: join tokens, unlock keys
k3s_token  K10  base64  64  docs.k3s.io: join tokens  ^[0-9a-f]{64}
scaleway_key  SCW DO00 GOOG1E EXO  letters  16-60  docs of Scaleway, DigitalOcean, Google, Exoscale: access keys  ^(?=.*\d)(?:[A-Z\d]+|[0-9a-f]+)$
linkedin_token  WPL_AP1.  path  16  learn.microsoft.com/linkedin: client secrets
linkedin_token  AQU AQV AQW AQX  dashed  200  learn.microsoft.com/linkedin: access tokens
twitch_token  oauth:  letters  30-30  dev.twitch.tv: chat
ntfy_token  tk_  letters  29-29  docs.ntfy.sh: access tokens  \d
imagekit_key  private_  base64  28-28  imagekit.io/docs: private keys  ^[A-Za-z0-9+/]{27}=$
wallet_key  suiprivkey1 addr_xsk1 root_xsk1 acct_xsk1 ed25519_sk1 ed25519e_sk1 edsk edesk spsk p2sk secret-extended-key-main1  letters  50  docs of Sui, Cardano, Tezos, Zcash: private keys
wallet_key  S  upper  55-55  developers.stellar.org: secret seeds
asana_token  1/ 2/  scheme  43  developers.asana.com: personal access tokens  ^\d{10,20}(?:/\d{10,20})?:[0-9a-f]{32}$
api_key  endr+ cfat_ cfut_ cfk_ p8e- A21AA AVNS_ ico- tk-us- tk-eu- s-s4t2ud- s-s4t2af- spu- da2- dnkey- BBFF- sec-c- duffel_live_ duffel_test_ sm_aat_ sm_pat_ sm_sat_ alcht_ apify_api_ apify_proxy_ apify_ui_ ddp_ ddw_ flb_live_ ak_live_ ak_test_ rootly_ salad_cloud_ slk_ sqco_ pgar_ ramp_sec_ shltm_ odt_ mdb_sa_sk_ scp-live- scp-test- storecove_ ion_ codemagic_ launchdarkly-secret- launchdarkly-private- persona_production_ persona_sandbox_ pdl_live_apikey_ pdl_sdbx_apikey_ secret-live- secret-test- secret- console- essu_ hcaik_ hcbik_ hcxik_ hcamk_ hcxmk_ napi_ xau_ CCDB1_ bfl_ sess- esecret_ bb_live_ bb_ma_ bb_pr_ dtn_ m0- nk- sk_car_ sk_a2V5 pat_ n8n_api_ retool_ sktsec_ jsrp_ jsrd_ packagist_uat_ packagist_oat_ chpt_ argos_ depot_org_ depot_project_ depot_user_ gb_api_ xaat- xapt- hbp_ cu_ inc_ fhb- ucat_ tid_ tsec_ pina_ cnvca dls_ nbp_ os_v2_app_ os_v2_org_ pk_prod_ snyk_ cxtp_ cxup_ censys_  dashed  20  ${LISTED}  ^(?=.*\d.*\d)(?=.*[A-Za-z])(?=.*[A-Za-z0-9]{12})(?=.*(?:\d[A-Za-z]|[a-z][A-Z]))
api_key  VF. v1.0- sk.eyJ 3MVG9 5AEP861 v1.local. v2.local. v3.local. v4.local. v1.public. v2.public. v3.public. v4.public. AQVN y0_ t1.9eu vk1.a. aivenv1 dG9rOj cflt act. rft. clt. ptr_ hawk. tkn.v1_ api_live. api_sandbox. api_live_us. snyk_uat. snyk_sat. STS. na1. fnA  path  32  ${LISTED}  ${MIXED}
api_key  api_ pat. sat. st. 1000. oaa  dotted  40  ${LISTED}  ^(?=.*\d.*\d.*\d)\w{10,}\.(?:v1\.)?[\w-]{16,}
api_key  s. o.  letters  24-32  ${LISTED}  ^(?=.*\d.*\d)(?=.*[A-Z]).*(?:[a-z][A-Z\d].*){4}
api_key  app- dataset- ak- as- md-  dashed  22-24  ${LISTED}  ^(?=.*\d)(?=.*[A-Z])(?=.*[a-z])
api_key  web_ app_ auto_ cal_ cal_live_  hex  32  ${LISTED}
api_key  AKID AKLT K001 K002 K003 K004 K005 KEY01  base64  27-60  ${LISTED}  ${MIXED}
wallet_key  ed25519: ed25519-priv-0x secp256k1-priv-0x 0201036c6e64  letters  64  docs of NEAR, Aptos, lnd: private keys, macaroons
zapier_webhook  hooks.zapier.com/hooks/catch/  path  10  help.zapier.com: webhooks
ifttt_webhook  maker.ifttt.com/trigger/  path  30  help.ifttt.com: webhooks
make_webhook  hook.us1.make.com/ hook.us2.make.com/ hook.eu1.make.com/ hook.eu2.make.com/  path  20  make.com: webhooks
chat_webhook  open.feishu.cn/open-apis/bot/v2/hook/ open.larksuite.com/open-apis/bot/v2/hook/ outlook.office.com/webhook/ outlook.office365.com/webhook/ hc-ping.com/ webhook.site/  path  30  what these send to
discord_webhook  discord.com/api/v  path  40  discord.com/developers: webhooks  ^\d{1,2}/webhooks/
private_key  b3BlbnNzaC1rZXktdjEA MIIEowIBAAKC MIIEpAIBAAKC MIIEpQIBAAKC MIIEogIBAAKC MIICXAIBAAKB MIICXQIBAAKB MIICXgIBAAKB MIICWwIBAAKB MIIJKAIBAAKC MIIJKQIBAAKC MIIJJwIBAAKC MIIJKgIBAAKC MIIG4wIBAAKC MIIG5AIBAAKC MIIEvQIBADAN MIIEvAIBADAN MIIEvgIBADAN MIIEvwIBADAN MIICdgIBADAN MIICdwIBADAN MIICeAIBADAN MIIJQgIBADAN MIIJQwIBADAN MIIJRAIBADAN MHcCAQEEI MHQCAQEEI MIGkAgEBBD MIGHAgEAMBMG MIGTAgEAMBMG MIG2AgEAMBAG MC4CAQAwBQYDK2V  base64  40  RFC 5208, RFC 8017, RFC 5915, PROTOCOL.key of OpenSSH
private_key  LS0tLS1CRUdJTi  base64  80  RFC 7468, in base64  UFJJVkFUR|QUklWQVRF|BSSVZBVE|FBSSVZB|IFBSSVZBVE
cloudflare_token  eyJhIjoi  base64  100  developers.cloudflare.com: tokens of tunnels  iLCJ0Ijoi
jwt  eyJ  dotted  30  RFC 7519  ^[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)*=*$
password_hash  $2a$ $2b$ $2x$ $2y$ $5$ $6$ $y$ $7$ $gy$ $argon2id$ $argon2i$ $argon2d$ $scrypt$ $pbkdf2-sha256$ $pbkdf2-sha512$  hash  40  crypt(5)
password_hash  $1$ $apr1$  hash  24  crypt(5), htpasswd(1)
password_hash  {SSHA} {SHA} {SMD5} {SSHA256} {SSHA512} {PBKDF2}  hash  24  slapd(8)
password_hash  pbkdf2_sha256$ pbkdf2_sha512$ scrypt: pbkdf2:sha256:  scheme  50  docs.djangoproject.com, werkzeug
password_hash  SCRAM-SHA-256$  scheme  80  postgresql.org/docs: SCRAM
password_hash  *  hex  40-40  dev.mysql.com: password hashes  ^[0-9A-F]{40}$
`
  .trim()
  .split("\n")
  .map((row) => {
    const [kind, begins, of, count, source, shape] = row.split("  ");
    const [least, most] = count.split("-").map(Number);
    return {
      kind,
      begins: begins.split(" "),
      of: of as Charset,
      least,
      most,
      source,
      shape: shape ? new RegExp(shape) : undefined,
    };
  });

/** A stretch of text that is to be replaced, and why. */
export interface SecretSpan {
  readonly start: number;
  readonly end: number;
  readonly kind: string;
}

const BY_BEGINNING = new Map(RULES.flatMap((one) => one.begins.map((begin) => [begin, one] as const)));

/**
 * The rules' beginnings, the longer ones first. A beginning after a letter or digit begins no token, and one after
 * `pk_` belongs to a public key.
 */
const BEGINNING = new RegExp(
  `(?<![A-Za-z0-9]|(?<![A-Za-z0-9])pk_)(?:${[...BY_BEGINNING.keys()]
    .sort((a, b) => b.length - a.length)
    .map((begin) => begin.replace(/[.$/*+{}]/g, "\\$&"))
    .join("|")})`,
  "g",
);

/** Tables of characters, by their codes. */
const TABLES = Object.fromEntries(
  Object.entries(CHARSETS).map(([name, one]) => [
    name,
    Uint8Array.from({ length: 128 }, (_, code) => (one.test(String.fromCharCode(code)) ? 1 : 0)),
  ]),
) as Readonly<Record<Charset, Uint8Array>>;

/** Returns the ends of runs of characters. A run with many beginnings is walked once. */
function runEnds(text: string): (of: Charset, at: number) => number {
  const known = new Map<Charset, { from: number; to: number }>();
  return (of, at) => {
    const last = known.get(of);
    if (last && at >= last.from && at <= last.to) return last.to;
    const table = TABLES[of];
    let to = at;
    while (table[text.charCodeAt(to)] === 1) to++;
    known.set(of, { from: at, to });
    return to;
  };
}

/** Returns whether the text is one repeated character, as in a placeholder (`ghp_xxxxxxxx`). */
export function isFiller(text: string): boolean {
  for (let at = 1; at < text.length && at < 64; at++) if (text[at] !== text[0]) return false;
  return true;
}

export function findTokens(text: string): SecretSpan[] {
  const spans: SecretSpan[] = [];
  const runEnd = runEnds(text);
  /** Number of comparisons of a shape in the run that ends there. */
  let tries = { end: -1, count: 0 };
  /**
   * Returns whether it has the shape. A run with many false beginnings is made to be slow, or hides a token: it counts.
   */
  const fits = ({ shape }: TokenRule, start: number, end: number): boolean => {
    if (!shape) return true;
    if (end - start > SHAPED) return false;
    tries = { end, count: end === tries.end ? tries.count + 1 : 1 };
    return tries.count > MOST_TRIES || shape.test(text.slice(start, end));
  };
  BEGINNING.lastIndex = 0;
  for (let found = BEGINNING.exec(text); found; found = BEGINNING.exec(text)) {
    const { index } = found;
    const past = index + found[0].length;
    const one = BY_BEGINNING.get(found[0]) as TokenRule;
    let end = runEnd(one.of, past);
    const cut = cutAt(text, past, end, one);
    // A sentence ends with a dot that is no part of its last word.
    if (one.of !== "base64") while (end > past && ".-,".includes(text[end - 1])) end--;
    let isToken = isLong(one, end - past) && !isFiller(text.slice(past, end)) && fits(one, past, end);
    if (cut && (!isToken || cut.isFull) && isLong(one, cut.value.length) && (one.shape?.test(cut.value) ?? true)) {
      isToken = true;
      end = cut.end;
    }
    if (isToken) spans.push({ start: index, end, kind: one.kind });
    BEGINNING.lastIndex = isToken ? end : past;
  }
  return spans;
}

const isLong = ({ least, most = Number.POSITIVE_INFINITY }: TokenRule, length: number): boolean =>
  length >= least && length <= most;

/** The stretch between two pieces of a token: the end of a line, or a program that joins them. */
const JOINT =
  /["'`]?[ \t]{0,8}(?:\)?[+.&,|~<>\\]{1,2}[ \t]{0,8})?(?:\r?\n[ \t>|#*\u2502\u2503]{0,40})?(?:[+.&\\]{1,2}[ \t]{0,8})?(?:[rfbuRFBUN@]?["'`])?/y;
const MOST_PIECES = 80;
/** Columns from which on a line may be full. */
const FULL = 56;

/** A token that continues after the end of a line, or in another string. */
interface CutToken {
  readonly value: string;
  readonly end: number;
  /** Returns whether its first line has the length of cut lines, or joins a list of pieces. */
  readonly isFull: boolean;
}

function cutAt(text: string, start: number, end: number, { of, least }: TokenRule): CutToken | undefined {
  if (end === text.length || end - start > SHAPED || isFiller(text.slice(start, end))) return undefined;
  const table = TABLES[of];
  let value = text.slice(start, end);
  let past = end;
  let isFull = false;
  for (let pieces = 0; pieces < MOST_PIECES; pieces++) {
    JOINT.lastIndex = past;
    const joint = JOINT.exec(text)?.[0] ?? "";
    const isLine = joint.includes("\n");
    if (!isLine && !/^["'`].*[+.&,|~<>\\].*["'`]$/.test(joint)) break;
    if (pieces === 0) isFull = isLine ? end - text.lastIndexOf("\n", end - 1) > FULL : !joint.includes(",");
    let to = past + joint.length;
    while (table[text.charCodeAt(to)] === 1 && to - past < SHAPED) to++;
    const piece = text.slice(past + joint.length, to).replace(/[.,-]+$/, "");
    // The next line is another sentence, another setting or another token.
    if (!/\d|[a-z][A-Z]/.test(piece) || /^(?:[:=(_→\t]|\S?-)/.test(text.slice(to, to + 2))) break;
    if (piece.length < 6 && value.length >= least && !isFull) break;
    value += piece;
    past += joint.length + piece.length;
  }
  return past === end ? undefined : { value, end: past, isFull };
}

/** Tokens whose beginning is not the same for all of them: all expressions are bounded. */
const SHAPES: readonly (readonly [kind: string, shape: RegExp, ...words: string[]])[] = [
  // core.telegram.org: bots have the number of the bot before their token.
  ["telegram_token", /(?:(?<=\/bot)|(?<![A-Za-z0-9]))\d{8,10}:A[A-Za-z0-9_-]{34}(?![A-Za-z0-9_-])/g, ":A"],
  // discord.com/developers: the id in base64, a time and a signature.
  [
    "discord_token",
    /(?<![A-Za-z0-9_-])[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])/g,
  ],
  // developers.facebook.com, developer.squareup.com, developer.x.com: beginnings that pictures have in base64, too.
  ["facebook_token", /(?<![A-Za-z0-9+/=_-])EAA[A-Za-z0-9]{90,400}(?![A-Za-z0-9+/=_-])/g, "EAA"],
  ["square_token", /(?<![A-Za-z0-9+/=_-])EAAA[A-Za-z0-9_-]{60}(?![A-Za-z0-9+/=_-])/g, "EAAA"],
  ["twitter_token", /(?<![A-Za-z0-9+/=_-])A{21}[A-Za-z0-9%]{30,120}(?![A-Za-z0-9+/=_-])/g, "AAAAAAAAAAAAAAAAAAAAA"],
  // learn.microsoft.com: client secrets of Entra ID.
  ["azure_client_secret", /(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])/g, "Q~"],
  // developer.hashicorp.com/terraform: the id of the token is before its secret.
  ["terraform_token", /(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{50,80}/g, ".atlasv1."],
  // 1password.com: secret keys; groups of a recovery code of a disk or an account.
  ["recovery_key", /(?<![\w-])(?:A3-)?[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){5,7}(?![\w-])/g],
  [
    "totp_secret",
    /(?<![A-Za-z])(?:[Oo]tp|OTP|[Tt]otp|TOTP|2[Ff][Aa]|MFA|mfa|[Aa]uthenticator)[ _-]{0,2}(?:[A-Za-z]{2,8})?[ :=]{1,3}(?:[A-Z2-7]{16,64}|(?:[A-Z2-7]{4} ){3,15}[A-Z2-7]{4})(?![A-Za-z0-9])/g,
  ],
  // The Bitcoin wiki: private keys of wallets, compressed or not, by the characters that they begin with.
  [
    "wallet_key",
    /(?<![A-Za-z0-9+/=_-])(?:5[1-9A-HJ-NP-Za-km-z]{50}|[KLc][1-9A-HJ-NP-Za-km-z]{51})(?![A-Za-z0-9+/=_-])/g,
  ],
  // Keys of two-factor authentication as forms show them: groups of base32, without words among them.
  [
    "totp_secret",
    /(?<![\w-] ?)(?:[a-z2-7]{4} ){7}[a-z2-7]{4}(?![\w-])(?<=[2-7][a-z2-7 ]{0,38})(?<=[g-z][a-z2-7 ]{0,38})/g,
  ],
  // Bytes of a key: 64 of a wallet of Solana, and others after their name.
  ["wallet_key", /\[\s{0,8}\d{1,3}(?:,\s{0,16}\d{1,3}){63}\s{0,8}\]/g],
  [
    "private_key",
    /[[{](?=\s{0,8}(?:0x|\d))(?<=(?:key|secret|seed|wallet|passw)\w{0,24}[^\n[{(]{0,24}(?:\[\w{0,16}\])?[^\n[{(]{0,8}.)\s{0,8}(?:0x[0-9a-f]{2}|\d{1,3})(?:,\s{0,16}(?:0x[0-9a-f]{2}|\d{1,3})){15,127},?\s{0,8}[\]}]/gi,
  ],
  // hardhat.org, docs.ethers.org, viem.sh, book.getfoundry.sh: keys of accounts, alone or in a list.
  [
    "wallet_key",
    /(?<![0-9A-Za-z])(?:0x)?[0-9a-f]{64}(?![0-9A-Za-z])(?<=(?:accounts|(?<![a-z])pk|wallet(?:[ \t](?:address|import|key))?|signer|deployer|fromPrivateKey|privateKeyTo\w{1,12}|from_key|startBroadcast|HDWalletProvider)["']?[\s:=([{]{1,12}["'`]?(?:(?:0x)?[0-9a-f]{64}["'`,\s]{1,12}){0,20}(?:0x)?[0-9a-f]{64})/gi,
    "accounts",
    "PK",
    "allet",
    "igner",
    "eployer",
    "rivateKey",
    "from_key",
    "Broadcast",
  ],
  // help.salesforce.com, support.maxmind.com, docs.newrelic.com, developers.facebook.com, rancher.com.
  ["salesforce_token", /(?<![A-Za-z0-9])00D[A-Za-z0-9]{12,15}![A-Za-z0-9._]{60,200}/g, "00D"],
  ["maxmind_key", /(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9])/g, "_mmk"],
  ["newrelic_key", /(?<![A-Za-z0-9])(?:eu01xx)?[0-9a-f]{26,40}FFFFNRAL(?![A-Za-z0-9])/g, "NRAL"],
  ["facebook_token", /(?<!\w)\d{15,16}\|[A-Za-z0-9_-]{27}(?![\w-])/g, "|"],
  ["rancher_token", /(?<![\w-])(?:token|kubeconfig)-[a-z0-9-]{5,40}:[a-z0-9]{54}(?!\w)/g, "token-", "kubeconfig-"],
  // firebase.google.com: keys of the old server.
  ["firebase_key", /(?<![\w-])AAAA[\w-]{7}:APA91[\w-]{100,180}(?![\w-])/g, ":APA91"],
  // developers.deepl.com: keys of the free plan.
  ["deepl_key", /(?<![\w-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:fx(?!\w)/g, ":fx"],
  // mailchimp.com/developer: the data center comes last.
  ["mailchimp_key", /(?<![A-Za-z0-9])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])/g, "-us"],
];

/** Returns the matches of a shape in a text, if it has one of the words, or if no words are given. */
export function findMatches(shape: RegExp, text: string, words: readonly string[] = []): Iterable<RegExpExecArray> {
  let isNear = words.length === 0;
  for (const word of words) if (!isNear) isNear = text.includes(word);
  // Most texts have none, which a search finds out faster than an iterator.
  return isNear && text.search(shape) >= 0 ? text.matchAll(shape) : [];
}

/** Yields the tokens that have a shape and no beginning. */
export function* findShapes(text: string): Generator<SecretSpan> {
  for (const [kind, shape, ...words] of SHAPES)
    for (const { 0: found, index } of findMatches(shape, text, words))
      yield { start: index, end: index + found.length, kind };
}
