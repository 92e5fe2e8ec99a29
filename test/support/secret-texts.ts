// biome-ignore-all lint/suspicious/noTemplateCurlyInString: other languages have place-holders, too
/**
 * Secrets as people leave them in texts. A value stands where its place-holder is, made when it is needed: {p} a password
 * of letters and digits, {s} one with other signs, {w} one of letters only, {v} one of four words, {i} with underscores and
 * {j} with dots between, {m} one of two words and a number, {l20} letters and digits, {h32} hex, {n8} digits, {b44} base64,
 * {u20} base32, {g} base32 in groups, {d} letters and digits in groups, {c} five letters, {k} a key of a wallet, {uuid}.
 * Each of them is a secret. Each text reaches a rule of src/core/redact, or an alternative of one, that no other does.
 */

import { Random } from "./random.ts";

const LETTERS = "abcdefghijkmnopqrstuvwxyz";
const SETS: Readonly<Record<string, string>> = {
  l: `${LETTERS}${LETTERS.toUpperCase()}0123456789`,
  h: "0123456789abcdef",
  n: "123456789",
  b: `${LETTERS}${LETTERS.toUpperCase()}0123456789+/`,
  u: "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
  g: "abcdefghijklmnopqrstuvwxyz234567",
  k: "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
};
/** The beginning of each class, so that every token has a digit and a capital. */
const BEGINS: Readonly<Record<string, string>> = { l: "aB3", h: "a1", n: "4", b: "aB3", u: "Q2", g: "n6", k: "aB3" };
const WORDS = "copper lantern walrus biscuit orchid hammer pigeon velvet turnip canyon saddle mitten".split(" ");

function run(random: Random, set: string, length: number): string {
  let text = BEGINS[set];
  while (text.length < length) text += random.pick([...SETS[set]]);
  return text.slice(0, length);
}

function madeFor(random: Random, name: string): string {
  if (name === "p") return `q${run(random, "l", 7)}7x`;
  if (name === "s") return `${run(random, "l", 6)}!${run(random, "l", 2)}#Zk`;
  if (name === "w") return `zugplomkrav${random.pick(WORDS)}`;
  if (name === "v") return Array.from({ length: 4 }, (_, at) => WORDS[3 * at + random.int(3)]).join(" ");
  if (/^[ij]$/.test(name)) return madeFor(random, "v").replaceAll(" ", name === "i" ? "_" : ".");
  if (name === "d" || name === "g")
    return run(random, name === "d" ? "l" : "g", name === "d" ? 24 : 32).replace(/(.{4})(?=.)/g, "$1 ");
  if (name === "m")
    return `${random.pick(WORDS)}${random.pick(WORDS).replace(/^./, (c) => c.toUpperCase())}${10 + random.int(90)}`;
  if (name === "c") return Array.from({ length: 5 }, () => random.pick([..."bcdfghjkmnpqrstvwxyz"])).join("");
  if (name === "k") return `K${run(random, "k", 51)}`;
  if (name === "uuid") return [8, 4, 4, 4, 12].map((digits) => random.hex(digits)).join("-");
  return run(random, name[0], Number(name.slice(1)));
}

const HOLE = /\{(p|s|w|v|m|d|i|j|c|g|k|uuid|[lhnbu]\d+)\}/g;

/** A text with secrets in it. */
export interface SecretText {
  readonly template: string;
  readonly text: string;
  readonly secrets: readonly string[];
}

/** Fills the holes of a template. */
export function filled(template: string, random: Random): SecretText {
  const secrets: string[] = [];
  const text = template.replace(HOLE, (_, name: string) => {
    secrets.push(madeFor(random, name));
    return secrets.at(-1) as string;
  });
  return { template, text, secrets };
}

/** Returns the templates of secrets as texts, other ones with each seed. */
export function secretTexts(seed = 1): SecretText[] {
  const random = new Random(seed);
  const templates = [...TOKENS, ...inWords(NAMED), ...inWords(LABELS).map((word) => `${word}: {p}`), ...TEMPLATES];
  return [...templates.map((template) => filled(template, random)), ...encoded(random)];
}

const inWords = (text: string): string[] => text.trim().split(/\s+/);

/** Tokens that are known by how they begin. */
export const TOKENS = inWords(`
  gho_{l36} glpat-{l20} AIza{l35} ya29.{l60} GOCSPX-{l28} LTAI{l20} xoxb-123456789012-1234567890123-{l24}
  hooks.slack.com/services/T00000000/B00000000/{l24} discord.com/api/webhooks/123456789012345678/{l68} sk_live_{l24}
  whsec_{l32} npm_{l36} pypi-AgEIcHlwaS5vcmc{l100} rubygems_{h48} hf_{l34} gsk_{l52} xai-{l80} pplx-{l48} r8_{l37}
  nvapi-{l64} lsv2_pt_{h32} xkeysib-{h64} key-{h32} SK{h32} dop_v1_{h64} shpat_{h32} dapi{h32} hvs.{l95} glsa_{l41}
  lin_api_{l40} ntn_{l46} figd_{l43} vcp_{l24} nfp_{l40} NRAK-{u27} sntrys_{l80} dp.pt.{l43} pul-{h40} pscale_tkn_{l43}
  sbp_{h40} tskey-auth-{l32} AGE-SECRET-KEY-1{l58} ATATT3{l60} sgp_{h40} SWMTKN-1-{l70} apify_api_{l36} p8e-{l32}
  sk_prod_{l24} suiprivkey1{l58} github_pat_{l82} sk-ant-api03-{l93} sk-or-v1-{h64} sk-proj-{l120} sk-{l48} AKIA{u16}
  dckr_pat_{l27} {h32}-us12 {h8}-{h4}-{h4}-{h4}-{h12}:fx abc8Q~{l34} llx-{l48} AQ.Ab8RN6{l40} pat-na1-{uuid} sl.B{l130}
  mfa.{l84} glrtr-{l20} EAAC{l150} jina_{l60} fw_{l24} fc-{h32} rpa_{l40} xsmtpsib-{h64} mlsn.{h64} phx_{l43} rnd_{l28}
  xprv9s21ZrQH143K{l95} access-production-{uuid} waka_{uuid} nsec1{l58} ctx7sk-{uuid} amzn.mws.{uuid}
  vercel_blob_rw_{l16}_{l30} EAAA{l60}
`);

/** Secrets with a name, and in addresses, without a blank. */
const NAMED = `
  SMTPPASS={p} STRIPEKEY={l32} REDISCLI_AUTH={w} rootpw="{p}" TWILIO_AUTH_TOKEN={h32} 口令={p} 密钥:{l24}
  WIFI:S:Home;T:WPA;P:{p};; https://api.example.com/x?appid={h32} https://x.test/a?sid={h32}
  https://x.test/a?ticket={l24} https://x.test/a?signature={h40} postgresql+asyncpg://app:{s}@db:5432/main
  mysql://root:{w}@localhost/x https://oauth2:{l26}@gitlab.x.test/a.git root:{p}@tcp(127.0.0.1:3306)/app?parseTime=true
  jdbc:oracle:thin:scott/{p}@//db:1521/x *:*:*:postgres:{p} http://x.test/?X-Amz-Credential=a&X-Amz-Signature={h64}
  https://discord.com/api/v10/webhooks/123456789012345678/{l68} https://hooks.zapier.com/hooks/catch/1234567/{l8}/
  https://maker.ifttt.com/trigger/x/with/key/{l22}
  https://outlook.office.com/webhook/{uuid}@{uuid}/IncomingWebhook/{h32}/{uuid}
  https://api.telegram.org/bot110201543:AA{l33}/getMe ASP.NET_SessionId={l24} laravel_session={l40}
  <db:Password>{s}</db:Password> <password><![CDATA[{p}]]></password> {"kty":"oct","k":"{l43}"} ds.setPassword("{w}");
  cy.get('#password').type('{p}') bob:{SHA}{b27}= {SSHA}{b32} bob:1001:aad3b435b51404eeaad3b435b51404ee:{h32}:::
  elastic:{p}@localhost:9200 VAULT_TOKEN=s.{l24} BW_SESSION={b88} user=bob&pass={w} SENDGRID_API_KEY=SG.{l22}.{l43}
  TF_TOKEN_app_terraform_io={l14}.atlasv1.{l67} 登录密码:{w}9 password%3D{p} password&#61;{p}
  https://app.example.org/password-reset/MTI/{l6}-{h32}/ https://app.example.org/invitations/{l32} sonar.login=sqp_{h40}
  vm.startBroadcast(0x{h64}); パスワードはこちらです：{p}
`;

/** Words for a password, in front of one. */
const LABELS = `
  DBPASSWD mdp senha palavra-passe wachtwoord lösenord hasło heslo jelszó şifre parola пароль 密碼 비밀번호 סיסמה κωδικός
  clave
`;

const TEMPLATES: readonly string[] = [
  "Password:\n{s}",
  "creds: admin:{s}",
  "password: {n8}",
  '{"pin": "{n6}"}',
  "let pwd = `{p}`;",
  "'password' => '{w}',",
  "define('DB_PASSWORD', '{w}');",
  "define( \"AUTH_KEY\", '{s}{s}{s}{s}' );",
  "mot de passe : {p}",
  "mật khẩu: {p}",
  "كلمة المرور: {p}",
  '{"contraseña": "{w}"}',
  "токен: {l24}",
  "mysql -u root -p{p} app",
  "mariadb -p{w} -e 'select 1'",
  "docker login -u bob -p {p}",
  "podman login -u=bob -p={p} quay.io",
  "helm registry login r.example -u x -p {p}",
  "sshpass -p'{s}' scp a b:",
  "curl -b 'sid={l24}' https://x.test",
  "http -a bob:{w} GET x.test",
  "redis-cli -h cache -a {w} ping",
  "127.0.0.1:6379> AUTH {p}",
  "requirepass {p}",
  "mongosh -u root -p {w} --authenticationDatabase admin",
  "ldapsearch -x -D cn=admin -w {w} -b dc=x",
  "smbclient //srv/share -U 'bob%{p}'",
  "net use Z: \\\\srv\\share {p} /user:bob",
  "net user bob {p} /add",
  "sqlplus scott/{p}@orcl",
  "openssl rsa -in k.pem -passin pass:{w} -out o.pem",
  "zip -P {w} a.zip a",
  "7z x -p{p} a.7z",
  "unrar x -p{p} a.rar",
  "echo 'bob:{p}' | chpasswd",
  "htpasswd -bc .htpasswd bob {w}",
  "oc login -u bob -p {w} https://api:6443",
  "cf login -a api -u bob -p {p}",
  "lftp -u bob,{p} ftp.example.org",
  "rabbitmqctl add_user bob {p}",
  "twine upload -u bob -p {p} dist/*",
  "poetry config http-basic.priv bob {p}",
  "nuget push a.nupkg -k {l46}",
  "psexec \\\\srv -u bob -p {p} cmd",
  "restic init --password-command 'echo {p}'",
  "cqlsh -u cassandra -p {p}",
  "mycli --api-key '{l24}'",
  'spawn ssh bob@h\nexpect "assword:"\nsend "{p}\\r"',
  "USER bob\r\nPASS {w}\r\n",
  "/msg NickServ IDENTIFY {p}",
  "CREATE USER bob WITH PASSWORD '{w}';",
  "INSERT INTO users (name, password) VALUES ('bob', '{p}');",
  "machine x.test login bob password {p}",
  "Proxy-Authorization: Basic Ym9iOmh1bnRlcg==",
  'Authorization: Digest username="bob", realm="x", response="{h32}"',
  "Authorization: AWS4-HMAC-SHA256 Credential=X/20260101/us/s3/aws4_request, SignedHeaders=host, Signature={h64}",
  ".x.test\tTRUE\t/\tTRUE\t1893456000\tsid\t{l30}",
  "<key>Password</key>\n  <string>{w}</string>",
  "env:\n  - name: DB_PASSWORD\n    value: {w}",
  '[{"Key": "password", "Value": "{w}"}]',
  "kind: Secret\nstringData:\n  smtp: {p}\n",
  "    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo{b200}",
  "$ANSIBLE_VAULT;1.1;AES256\n{h80}\n{h80}\n{h40}",
  'Content-Disposition: form-data; name="password"\r\n\r\n{p}\r\n--x',
  "enable secret {p}",
  "snmp-server community {p} RO",
  'ConvertTo-SecureString "{w}" -AsPlainText -Force',
  '{"type":"service_account","private_key":"-----BEGIN PRIVATE KEY-----\\nMIIE{b60}\\n{b64}\\n-----END PRIVATE KEY-----\\n"}',
  '{"SecretString": "{p}"}',
  "AKIA{u16}\n{b40}",
  "Access key ID,Secret access key\nAKIA{u16},{b40}",
  'process.env.DB_PASSWORD || "{w}"',
  "${DB_PASSWORD:={p}}",
  "'password' => env('DB_PASSWORD', '{w}'),",
  "config('DB_PASSWORD', default='{w}')",
  'getEnv("JWT_SECRET", "{w}")',
  "requests.get(u, auth=('bob', '{p}'))",
  "mysqli_connect('db', 'root', '{p}', 'x')",
  "new PDO($dsn, 'root', '{p}')",
  'DriverManager.getConnection(url, "root", "{p}")',
  'jwt.sign(payload, "{l32}")',
  "jwt.encode(p, '{p}{p}', algorithm='HS256')",
  "if (password === '{p}') return",
  "recovery codes:\n1. aB3d4-{l5}\n2. {l5}-{l5}\n3. {l5}-{l5}",
  "Backup codes: {n8} {n8}, {n8}",
  "TOTP seed = {u32}",
  "your verification code is {n6}",
  "FlyV1 fm2_{b80}",
  "$apr1$abcdefgh${l22}",
  "pbkdf2_sha256$600000$abc${b43}=",
  'password <- "{w}"',
  '(setq password "{w}")',
  "printf '{w}' | podman secret create pw -",
  "etcdctl --user root:{p} get /",
  '"apiKey": "{uuid}"',
  "openssl enc -d -aes-256-cbc -pass pass:{w} -in x",
  "gpg --passphrase '{v}' -c x",
  "ssh-keygen -t rsa -N '{p}' -f k",
  "cryptsetup luksOpen --key-file <(echo {p})",
  "echo -n '{w}' | cryptsetup luksFormat /dev/sda -",
  "plink -pw {p} bob@h",
  "lpass login bob <<< {p}",
  "bw unlock {p}",
  "bw login bob@x.test {p}",
  "kinit bob <<< {p}",
  "echo {w} | kinit bob",
  "useradd -p '$6${l8}${l86}' bob",
  "ipmitool -H h -U admin -P{p} chassis",
  "ldapmodify -D cn=x -w '{p}' -f x",
  "mosquitto_sub -h h -u u -P '{w}'",
  "snowsql -a x -u y --private-key-passphrase {p}",
  "bcp db.dbo.t out f -S s -U u -P{p}",
  "isql dsn user {p}",
  "impdp system/{p} directory=x",
  "\\set pw '{p}'",
  "CREATE USER u IDENTIFIED BY {p};",
  "SELECT crypt('{p}', gen_salt('bf'))",
  "cookies = {'sessionid': '{l32}'}",
  "x-functions-key: {b54}==",
  "Authorization: GenieKey {uuid}",
  "PAT: {l52}",
  '<machineKey validationKey="{h64}" decryptionKey="{h48}" />',
  '<param name="password">{w}</param>',
  "Recovery key: {u4}-{u4}-{u4}-{u4}-{u4}-{u4}",
  "FileVault recovery key = {u4}-{u4}-{u4}-{u4}-{u4}-{u4}",
  "pin code: {n6}",
  "OTP: {n6}",
  "wallet seed: {v} {v} {v}",
  "WIF: K{l51}",
  "password\t{p}",
  "DB_PASSWORD ?= {w}",
  "/p:{p} /u:bob",
  "adgangskoden til serveren er {p} lige nu",
  "$ cat config/credentials.key\n{h32}\n$ ls",
  "# xxd /etc/app/hmac.key\n00000000: a7b1 fe7c 5e5d {h4} e098 db55 983c c47c  8~.|^].....U.<.|\n",
  'variable "smtp_password" {\n  description = "of the relay"\n  type        = string\n  default     = "{s}"\n}',
  '  ~ admin_password = "{p}" -> "{p}"',
  '"type": "random_password",\n"instances": [{"attributes": {"length": 20,\n"result": "{s}"\n}}]',
  " login | token\n-------+------\n ann   | {l32}\n",
  'password "qwzz xbva {h4} stvk"',
  "smtp_pass: 'qwzz xbva {h4} stvk'",
  "enter this key in the app: {g} by hand",
  "mc config host add prod https://s3.example.org ann {l32}",
  'my $db = DBI->connect("dbi:mysql:shop", "shop", "{p}");',
  "const index = searchClient('B7K1ML9XQ2', '{h32}');",
  "echo {p} > secrets/db_password.txt",
  "[smtp.example.org]:587 relay@example.org:{p}\n",
  "key of the wallet: {k}",
  "use {p} as the password, please",
  "The root password on db2 is now {p}",
  "Salasana testipalvelimelle on {p}, kiitos",
  "rclone obscure {p}",
  "PS C:\\> Get-Content .\\api_token.txt\n{h32}\n",
  "admin account is bob@x.test / kestrel-granite-{c}-sparrow",
  "root / {w} <- password",
  "Wiederherstellungscode lautet {h4}-{h4}-{h4}",
  "code de secours : {n4} {n4}",
  "Codes de récupération:\n{h8}\n{h8}",
  "código de respaldo: {n4} {n4}",
  "códigos de recuperação: {h5}-{h5}, {h5}-{h5}",
  "codice di backup: {n4} {n4}",
  "Резервный код: {n4} {n4}",
  "код восстановления {h5}-{h5}",
  "备用验证码：{n4} {n4}",
  "バックアップコードは{n4} {n4}です",
  "백업 코드: {n4} {n4}",
  "emergency codes\n- {n4} {n4}\n- {n4} {n4}",
  "accounts: [`0x{h64}`]",
  'new ethers.Wallet("0x{h64}", provider)',
  'new HDWalletProvider("{v} {v} {v}", url)',
  "cast wallet import a --mnemonic '{v} {v} {v}'",
  "schtasks /create /tn a /ru CORP\\svc /rp {p}",
  "signtool sign /f a.pfx /p {p} a.exe",
  "certutil -p {p} -importpfx a.pfx",
  "samba-tool user create bob {p}",
  "kadmin -p admin -w {p}",
  "qpdf --encrypt {p} {w} 256 -- a b",
  "cypher-shell -u neo4j -p {w}",
  "db2 connect to x user bob using {p}",
  "couchbase-cli server-list -c h -u bob -p {p}",
  "rabbitmqadmin -u bob -p {p} list queues",
  "networksetup -setairportnetwork en0 Home {p}",
  "nmcli con modify Home wifi-sec.psk {p}",
  "netsh wlan set profileparameter name=Home keyMaterial={p}",
  "hydra -l bob -p {p} ssh://h",
  "./add-user.sh -u bob -p {p}",
  "p4 -u bob -P {p} sync",
  "crypto isakmp key {p} address 203.0.113.9",
  " pre-shared-key local {p}",
  "tacacs-server key {p}",
  "radius-server host 10.0.0.1 key {p}",
  " ip ospf message-digest-key 1 md5 {p}",
  "ntp authentication-key 1 md5 {p}",
  " key-string {p}",
  "set security ike policy a pre-shared-key ascii-text {p}",
  "    set psksecret {p}",
  "snmp-server user bob g v3 auth sha {p} priv aes 128 {p}",
  "キーは {l32} です",
  "鍵はこれです: {l32}",
  "Hier ist der Schlüssel: {l32}",
  "voici la clé : {l32}",
  "aquí está la llave: {l32}",
  "aqui está a chave: {l32}",
  "ecco la chiave: {l32}",
  "вот ключ: {l32}",
  "키는 {l32} 입니다",
  "oto klucz: {l32}",
  "hier is de sleutel: {l32}",
  "işte anahtar: {l32}",
  "यह रही कुंजी: {l32}",
  "वो पासवर्ड है {p}",
  "snmpwalk -v2c -c {p} 10.1.2.3 1.3.6.1.2.1.1",
  'for the Pi: join wifi "Net" with passphrase {m} and then enable ssh',
  "- ssh port 2202\n- user odoo / pw {m}\n- cron at 03:00",
  "das Kennwort ist {m}, bitte nicht weitergeben",
  "CREATE USER 'a'@'%' IDENTIFIED BY '{j}'",
  "$ argocd admin initial-password -n argocd\n{p}\n\n It must be changed.",
  "$ snyk config set api={uuid}",
  'Your new application password for "a-b" is: {d}\nBe sure to save it.',
  'Credentials::new("bob".to_owned(), "{p}".to_owned())',
  "page.fill('input[type=password]', '{w}');",
  "if (!verify(body, sig, '{h40}')) { // GitHub webhook secret\n}",
  "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n{b48}\n",
  "Twilio::REST::Client.new('AC0123', '{h32}')",
  'MNEMONIC="{v} current {v} {v} {v} {v} use copper"',
  "$ node -p crypto.randomBytes(32).toString('hex')\n{h64}",
  "Pass phrase for key: {i}",
  "mc alias set local http://minio:9000 admin velvet-{c}-42",
  "│ token             │ {uuid} │",
  "mysqladmin -u root password '{w}'",
  "A temporary password is generated for root@localhost: {w}",
  "ssh bob@10.1.2.3 (pw {p})",
];

const hexOf = (text: string): string => Buffer.from(text).toString("hex");
const base64Of = (text: string): string => Buffer.from(text).toString("base64");
const wideOf = (text: string): string => Buffer.from(text, "utf16le").toString("latin1");
const each = (text: string, make: (code: number) => string): string =>
  [...text].map((c) => make(c.charCodeAt(0))).join("");

function dump(text: string, style: "xxd" | "hexdump" | "od"): string {
  const lines: string[] = [];
  for (let at = 0; at < text.length; at += 16) {
    const part = text.slice(at, at + 16);
    const bytes = hexOf(part).replace(/(..)(?=.)/g, "$1 ");
    const shown = part.replace(/[^ -~]/g, ".");
    const place = at.toString(16).padStart(8, "0");
    if (style === "xxd")
      lines.push(
        `${place}: ${hexOf(part)
          .replace(/(.{4})/g, "$1 ")
          .padEnd(40)} ${shown}`,
      );
    else if (style === "hexdump") lines.push(`${place}  ${bytes.padEnd(49)} |${shown}|`);
    else lines.push(`${at.toString(8).padStart(7, "0")} ${bytes}`);
  }
  return lines.join("\n");
}

/** Texts with a token that is cut where the sign ~ is, and the cutting text. */
const CUT = [
  ...["the token ~\n~ is set", "  token ~\n    ~\n", "git clone ~\\\n~", 'const t = "~" + "~";', "> see ~\n> ~"],
  ...["const t = '~' +\n  '~';", "$t = '~' . '~';", 'local t = "~" .. "~"', 't = "~" & "~"', 't = ("~"\n     "~")'],
  '["~", "~"].join("")',
];

/** Ways to write a secret in other signs. */
const ENCODED: Readonly<Record<string, (secret: string) => string>> = {
  hex: hexOf,
  "hex in upper case": (secret) => hexOf(`token=${secret}`).toUpperCase(),
  "hex with blanks": (secret) => hexOf(secret).replace(/(..)/g, "$1 "),
  "hex with colons": (secret) => hexOf(secret).replace(/(..)(?=.)/g, "$1:"),
  "bytes of C": (secret) => each(secret, (code) => `0x${code.toString(16)}, `).slice(0, -2),
  "numbers of bytes": (secret) => `Buffer.from([${[...Buffer.from(secret)].join(", ")}])`,
  xxd: (secret) => dump(`key = ${secret}\n`, "xxd"),
  hexdump: (secret) => dump(`a ${secret}`, "hexdump"),
  od: (secret) => dump(`a ${secret}`, "od"),
  "xxd -p": (secret) => hexOf(`some text before ${secret} and after it`).replace(/(.{60})/g, "$1\n"),
  base64: (secret) => base64Of(`x ${secret}`),
  "base64 twice": (secret) => base64Of(base64Of(`x ${secret}`)),
  "base64 of hex": (secret) => base64Of(hexOf(secret)),
  "UTF-16": wideOf,
  "UTF-16 password": (secret) => wideOf(`password=${secret}`),
  "UTF-16 in base64": (secret) => base64Of(wideOf(`$t = '${secret}'`)),
  fullwidth: (secret) => each(secret, (code) => String.fromCharCode(code + 0xfee0)),
  "hex escapes": (secret) => each(secret, (code) => `\\x${code.toString(16)}`),
  "octal escapes": (secret) => each(secret, (code) => `\\${code.toString(8)}`),
};

/** Secrets that are cut, encoded or dumped. The test looks for all that a reader could put together. */
function encoded(random: Random): SecretText[] {
  // Its beginning is apart from it: a repository with tokens in it is refused by those who look for them.
  const token = (): string => `${["gh", "p_"].join("")}${run(random, "l", 36)}`;
  const cut = (template: string, secret: string, at = 18): SecretText => {
    const [a, b] = [secret.slice(0, at), secret.slice(at)];
    return { template, text: template.replace("~", a).replace("~", b), secrets: [a.slice(8), b] };
  };
  const body = Array.from({ length: 14 }, () => run(random, "b", 64));
  const key = (template: string, text: string, count = 5): SecretText => ({
    template,
    text,
    secrets: body.slice(0, count),
  });
  const lines = (count: number, by = "\n"): string => body.slice(0, count).join(by);
  const [begin, end] = ["BEGIN", "END"].map((what) => `-----${what} RSA PRIVATE ${"KEY"}-----`);
  const numbered = [begin, ...body.slice(0, 5), end].map((line, n) => `${n + 1}\t${line}`).join("\n");
  const known = "w8rDq2Lp";
  const plain = base64Of(`\0bob\0${known}`);
  const all: SecretText[] = [
    ...CUT.map((template) => cut(template, token())),
    cut('password = "~" + "~"', `q8Kd${run(random, "l", 20)}`),
    cut("key ~\n~\nend", `sk-ant-${"api03-"}${run(random, "l", 90)}`, 60),
    ...Object.entries(ENCODED).map(([template, make]) => {
      const secret = token();
      return { template, text: make(secret), secrets: [secret] };
    }),
    key("key without BEGIN", `${lines(14)}\n${end}`, 14),
    key("key without BEGIN, in one line", `"${lines(4, "\\n")}\\n${end}\\n"`, 4),
    key("key without lines around", `MIIEowIBAAKC${"AQEA"}${lines(4)}`, 4),
    key("key of OpenSSH without lines", `b3BlbnNzaC1r${"ZXktdjEA"}AAAABG5vbmU${lines(3)}`, 3),
    key("key with quoted lines", `${begin}\n> ${lines(5, "\n> ")}\n> ${end}`),
    key("key joined by +", `"${begin}\\n" +\n"${lines(5, '\\n" +\n"')}\\n" +\n"${end}"`),
    key("numbered key", numbered),
    { template: "AUTH PLAIN", text: `AUTH PLAIN ${plain}`, secrets: [plain] },
    { template: "Basic", text: `Authorization: Basic ${base64Of("bob:zug")}`, secrets: [base64Of("bob:zug")] },
    { template: "env file in xxd", text: dump("A=1\nDB_PASSWORD=kd8Wq7Zt3Lm5\n", "xxd"), secrets: ["kd8Wq7Zt3Lm5"] },
    {
      template: "known, in base64",
      text: `DB_PASSWORD=${known} then ${base64Of(known)}`,
      secrets: [known, base64Of(known)],
    },
    { template: "known, in hex", text: `DB_PASSWORD=${known} then ${hexOf(known)}`, secrets: [known, hexOf(known)] },
  ];
  // No piece of an encoded text may be left.
  return all.map((given) =>
    given.secrets.every((secret) => given.text.includes(secret)) ? given : { ...given, secrets: [given.text.trim()] },
  );
}
