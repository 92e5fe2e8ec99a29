/** Secrets that a command, a statement or a call takes at a known place. All expressions are bounded. */

import { canBeSecret, isChance, isJumpy, NO_VALUE, TERM, UUID, WORDS } from "./names.ts";
import { findMatches, type SecretSpan } from "./tokens.ts";

/** A value in quotes or without. */
const VALUE = `(?:"([^"\\n$]{4,256})"|'([^'\\n]{4,256})'|([^\\s"'|;&<>()$\\\\{}%-][^\\s"'|;<>\`]{3,256}))`;

/** Programs, and their options that take a secret, as `command options / options`. */
const OPTIONS: readonly (readonly [command: string, option: string])[] = [
  ["(?:mysql|mariadb)[\\w-]{0,16}|7z[arz]?|rar|unrar", "-h?p=?"],
  [
    "(?:docker|podman|nerdctl|buildah|skopeo|helm registry|oras|crane auth|az|az acr|oc|cf|ibmcloud) login",
    "-p(?:=| )",
  ],
  [
    "certutil|tabcmd|tsm|cypher-shell|couchbase-cli|cbq|rabbitmqadmin|hydra|medusa|ncrack|ilorest|racadm|(?:\\./)?add-user\\.sh|mongo\\w{0,8}|crackmapexec|cme|nxc|netexec|evil-winrm|smbmap|bloodhound\\S{0,8}|certipy|kerbrute|twine upload|psexec\\w{0,3}|rdesktop|cqlsh|ncftp\\w{0,4}|beeline|tdsql|impala-shell",
    "-p(?:=| )",
  ],
  ["sshpass", "-p(?: |=)?"],
  ["(?:redis|valkey|keydb)-cli", "-a "],
  ["https?|xh", "-a [^\\s:]{1,64}:"],
  [
    "ldap(?:search|modify|add|delete|whoami|passwd)|security add-\\w{1,10}-password|kadmin[\\w.]{0,8}|odoo(?:-bin)?",
    "-w ",
  ],
  ["sqlcmd|osql|p4|bcp|zip|unzip|zipcloak|mosquitto_\\w{1,6}|ipmitool|isql|tsql", "-P(?: |)"],
  ["openssl enc", "-(?:k|pass) (?:pass:)?"],
  ["nuget push|dotnet nuget push", "-(?:k|ApiKey) "],
  ["snmp\\w{1,10}", "-(?:[AX]|c(?!\\s+p(?:ublic|rivate)\\b)) "],
  ["useradd|usermod", "-p "],
  ["ssh-keygen", "-[NP] "],
  ["plink|pscp|psftp", "-pw "],
  ["schtasks(?:\\.exe)?|signtool(?:\\.exe)?", "/[rR]?[pP] "],
  ["doctl auth init|snowsql|fly\\w{0,3}|vercel", "(?:-t|--access-token) "],
];

const option = ([command, flag]: readonly [string, string]): readonly [RegExp, RegExp] => [
  new RegExp(
    `(?<![\\w.:/=@-])(?:${command.replaceAll(" ", "[ \\t]{1,4}(?:[\\w.-]{1,64}[ \\t]{1,4})?")})(?=[ \\t])`,
    "g",
  ),
  new RegExp(`(?<=[ \\t])${flag.replaceAll(" ", "[ \\t]{1,4}")}${VALUE}`, "dg"),
];

const PROGRAMS = OPTIONS.map(option);
/** Longest command that is looked at. */
const LONGEST = 512;

/**
 * The kind of a secret, words that every text with one has, and its shape with the secrets as groups, a row each. A row
 * without words has a shape that is found quicker than words.
 */
const SHAPES: readonly SecretShape[] = String.raw`
password  -u  (?<![A-Za-z0-9-])(?:-u[ =]?|--(?:proxy-)?user[ =])["']?[A-Za-z0-9_.@\\-]{1,64}:([^\s"'$:/][^\s"']{3,128})
password  login  (?<![A-Za-z])login[ \t]{1,4}\S{1,64}\s{1,4}password[ \t]{1,4}(\S{4,128})
password  AUTH  (?:>|\n|^)[ \t]{0,4}AUTH[ \t]{1,4}(?!PLAIN|LOGIN|XOAUTH|CRAM)(?:\w{1,32}[ \t]{1,4})?${VALUE}(?=[ \t]{0,4}(?:\r?\n|$))
password    (?:^|\n)[ \t]{0,8}(?:requirepass|masterauth|sentinel auth-pass \S{1,64})[ \t]{1,4}${VALUE}
password  /user:  net[ \t]{1,4}use[ \t][^\n]{0,128}?(?:[ \t]([^\s/\\:*"]{5,128})[ \t]{1,4}/user:|/user:\S{1,64}[ \t]{1,4}([^\s/*]{5,128}))
password  -U  (?<![\w-])-U[ =]?["']?[\w.\\/@-]{1,64}%([^\s"'%]{4,128})
secret  ://  (?:https?|wss?)://[\w.-]{0,80}(?:alchemy|infura|quiknode|ankr\.com|getblock|p2pify|chainstack|blastapi|nodereal|drpc|nownodes|rpc|mainnet|sepolia)[\w.-]{0,80}/(?:[\w-]{1,24}/){0,4}(?!0x)([A-Za-z0-9_-]{24,128})(?![\w.-])
secret  /v  (?:https?|wss?)://[\w.-]{1,80}/v\d/(?=[\w-]{0,31}[a-z])(?=[\w-]{0,31}[A-Z])(?=[\w-]{0,31}\d)([A-Za-z0-9_-]{32})(?![\w.-])
password  net  net1?(?:\.exe)?[ \t]{1,4}user[ \t]{1,4}\S{1,64}[ \t]{1,4}([^\s/*]{4,128})
password  /p  (?<![^\s"'])/p(?:ass(?:word)?)?:["']?([^\s"'%$=]{5,128})(?!=)(?<!=)(?=[\s"']|$)
password    (?:sqlplus|sqlldr|impdp|expdp|rman)[ \t]{1,4}(?:-\w{1,8}[ \t]{1,4}){0,3}["']?\w{1,64}/"?([^\s"'@/$]{4,128})"?(?=@|[ \t]|$)
url_password  @// :1521  /([^\s"'@/$]{4,128})@(?://\w|[\w.-]{1,64}:1521)(?<=(?<![\w./-])\w{1,32}/[^\s/]{4,128}@\S{1,80})
url_password  @tcp( @unix(  (?<![\w/:.])\w{1,64}:([^\s"'@/$<{:]{4,128})@(?:tcp|unix)\(
password  pass:  (?<![\w-])-pass(?:in|out)?[ \t]{1,4}["']?pass:([^\s"'$]{4,128})
password  pass Pass  (?<![\w-])-(?:-passphrase|storepass|keypass|srcstorepass|deststorepass|keystorePassword|password|passwd)[ \t]{1,4}["']?([^\s"'$<{-][^\s"'$]{4,128})
password  echo printf  (?:echo|printf)[ \t]{1,4}(?:-n[ \t]{1,4})?${VALUE}[ \t]{0,4}\|[ \t]{0,4}(?:sudo[ \t][^\n|]{0,64}-S|sudo[ \t]{1,4}-S|[^\n|]{0,128}(?:--\w{0,16}-?stdin|--stdin|--with-token|secret (?:set|put|create)|kinit|cryptsetup|passwd|--passphrase-fd|-pass stdin))
password  <<<  (?:secret|login|auth|passwd|kinit|unlock|signin|token|su)[^\n]{0,64}?<<<[ \t]{0,4}${VALUE}
password  key-file  key-file[ \t]<\([ \t]?(?:echo|printf)[ \t](?:-n[ \t])?([^\s"')]{4,128})
password  bw  (?<![\w-])bw[ \t](?:unlock|login[ \t]\S{1,64})[ \t]${VALUE}
password  isql  isql[ \t]\w{1,64}[ \t]\w{1,64}[ \t]${VALUE}
password  htpasswd  htpasswd[ \t]{1,4}-[a-mo-zB-Z]{0,8}b[a-mo-z]{0,4}[ \t]{1,4}(?:-\w{1,4}[ \t]{1,4}){0,2}\S{1,128}[ \t]{1,4}\S{1,64}[ \t]{1,4}${VALUE}
secret    (?:add-authtoken|authtoken|pypi-token\S{0,64}|--password-command[ \t=]["']?echo)[ \t]{1,4}([^\s"'$<]{5,256})
password  http-basic  http-basic\S{0,64}[ \t]{1,4}\S{1,64}[ \t]{1,4}${VALUE}
password    (?:rclone[ \t]obscure|smbclient[ \t]\S{1,128}|iwconfig[ \t]\S{1,32}[ \t](?:key|enc)|(?:nmcli|mysqladmin)[ \t][^\n]{0,64}[ \t]password|wpa_passphrase[ \t]\S{1,32}|pulumi[ \t]config[ \t]set[ \t](?:--secret[ \t])?[\w:]{0,32}(?:[Pp]assword|[Tt]oken|[Ss]ecret|[Kk]ey))[ \t]{1,4}${VALUE}
password  assword assphrase  (?<![A-Za-z])(?:use|with|try|set|enter)[ \t]["'\x60]?(?=\S{0,64}\d)(?=\S{0,64}[A-Za-z])([^\s"'\x60/()]{6,128})["'\x60]?[ \t]as[ \t](?:\w{1,8}[ \t])?[Pp]ass(?:word|phrase)
password  WIFI:  WIFI:[^\n]{0,128}?(?<=[:;])P:([^;\n]{4,128});
password  lftp  (?<![\w-])lftp[^\n]{0,64}[ \t]-u[ \t]{1,4}[\w.@-]{1,64},([^\s"'$]{4,128})
password  rabbitmqctl  rabbitmqctl[ \t][^\n]{0,64}?(?:add_user|change_password)[ \t]{1,4}\S{1,64}[ \t]{1,4}${VALUE}
password  assword  assword[^\n]{0,16}\n[ \t]{0,16}send[ \t]{1,4}(?:-- )?"([^"\n\\$]{4,128})
password  PASS  (?:^|\n)(?:USER|NICK)[ \t]\S{1,64}[^\n]{0,64}\n(?:\d{3}[^\n]{0,128}\n)?PASS[ \t]{1,4}:?(\S{4,128})
password  NickServ  NickServ[ \t]{1,4}:?(?:IDENTIFY|identify)[ \t]{1,4}(?:\w{1,32}[ \t]{1,4})?(\S{5,128})
password    (?:^|\n)[ \t]{0,8}(?:username[ \t](?!and|or|&)\S{1,64}[ \t](?:privilege[ \t]\d{1,2}[ \t])?|enable[ \t])(?:password|secret)[ \t]{1,4}(?:\d[ \t]{1,4})?(\S{5,128})
password  snmp-server  snmp-server[ \t]{1,4}community[ \t]{1,4}(?!public|private)(\S{4,64})
password  red login account  (?<![A-Za-z])(?:credentials?|creds?|logins?|account)\\{0,3}["']?(?:[ \t]?[:=：]|[ \t](?:is|are))[ \t]{1,4}["'\x60]?[\w.@+-]{2,64}["'\x60]?[ \t]?[:/][ \t]?["'\x60]?((?=[^\s]{0,64}\d)[^\s"'\x60/$<]{5,128})
password  /  [ \t]/[ \t]["'\x60]?(?<=(?<![A-Za-z])(?:[Cc]red|[Ll]og(?:ged)?[ -]?[io]n|[Ss]ign(?:ed)?[ -]?[io]n|[Aa]ccount|[Aa]dmin|[Rr]oot|[Uu]ser|[Aa]ccess|[Aa]uth|[Zz]ug[aä]ng|[Aa]nmeld|[Kk]onto|[Bb]enutzer|[Cc]onnexion|[Cc]ompte|[Aa]cc[eè]s|[Cc]uenta|[Uu]su[aá]rio|[Cc]onta|[Uu]tente|доступ|логин|账[号户]|登录|アカウント|ログイン|계정|로그인)[^\n/|]{0,48}[\w.+@-]{0,64}["'\x60]?[ \t]/[ \t]["'\x60]?)((?![A-Za-z]+\d*(?:\.[a-z]{1,4})?(?:[\s"'\x60)]|$))(?=[^\s]{0,48}(?:\d[^\s]{0,24}[A-Za-z][^\s]{0,24}[\d!@#$%^&*]|[A-Za-z][^\s]{0,24}[\d!@#$%^&*][^\s]{0,24}[A-Za-z\d!@#$%^&*]))(?=[^\s]{0,48}\d)[^\s"'\x60/$<|()]{8,128}|(?:[a-z]{3,16}-){3,6}[a-z]{3,16}|(?<=@[^\s]{1,64}[ \t]/[ \t]["'\x60]?)(?:[a-z]{3,16}-){2}[a-z]{3,16}|(?<=(?:n[ \t]as|[trn][ \t](?:is|ist|es|est|é))[ \t]["'\x60]?\S{2,64}[ \t]/[ \t]["'\x60]?)(?=[^\s]{0,64}\d)[^\s"'\x60/$<|]{6,128})
password  /  [ \t]/[ \t]["'\x60]?(?<=[\w.@+-]{2}["'\x60]?[ \t]/[ \t]["'\x60]?)((?=[^\s]{0,64}[\d!@#$%^&*]|[^\s]{12})[^\s"'\x60/$<|(]{5,128})["'\x60]?[ \t]{0,2}(?:\(|<-|←|—|–)[^()\n]{0,24}?(?:[Pp]assw(?:or[dt])|[Kk]ennwort|pwd?|contrase.a|mot de passe|mdp|senha|парол[ья]|密码|パスワード|비밀번호)[^\w\n]{0,2}(?:\)|\n|$)
password    (?:isakmp[ \t]key|(?:tacacs|radius)-server[ \t](?:[^\n]{0,60}[ \t])?key|(?:ikev\d[ \t])?pre-shared-key(?:[ \t](?:local|remote|ascii-text|address[ \t]\S{1,40}[ \t]key))?|(?:message-digest|authentication)-key[ \t]\d{1,5}[ \t]md5|key-string|psksecret|wpa-psk[ \t]ascii|(?:auth[ \t](?:sha|md5)[\w-]{0,8}|priv[ \t](?:3?des|aes)(?:[ \t]\d{3})?))[ \t]{1,4}(?:\d[ \t]{1,4}|cipher[ \t])?(?=[^\s]{0,64}[\dA-Z!@#$])${VALUE}
secret  snyk codecov  (?:snyk[ \t](?:auth|config[ \t]set[ \t]api=)|codecov[^\n]{0,64}[ \t]-t)[ \t=]?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})
password  generated  temporary password is generated for \S{1,64}: (\S{8,64})
password  random_password  random_password[\s\S]{0,256}?"result\\{0,3}":[ \t]?\\{0,3}"([^"\\\n]{6,128})
secret  django-insecure  (django-insecure-[^\s"']{30,80})
secret  AES.new createCipheriv  (?:AES\.new\(|createCipheriv\([ \t]?["'][\w-]{1,24}["'],)[ \t]?b?["']([^"'\n]{16,64})["']
password  (p  \((?:pw|pwd|password)[ \t](?=\S{0,64}\d)(?=\S{0,64}[A-Za-z])([^\s()=]{6,64})\)
secret  _KEY _SALT  (?:AUTH|LOGGED_IN|NONCE)_(?:KEY|SALT)["']?[ \t]{0,4}[,=:][ \t]{0,24}(?=.(?:[^'"\n]*[^\w\s/.'"-]){4})(?:'([^'\n]{48,128})'|"([^"\n]{48,128})")
private_key  Private-Lines  Private-Lines:[ \t]\d{1,3}\r?\n((?:[A-Za-z0-9+/=]{1,76}(?:\r?\n|$)){1,64})
password  assw  (?:fill|type|sendKeys|setValue)\([ \t]{0,4}(?:"[^"\n]{0,64}[Pp]assw[^"\n]{0,64}"|'[^'\n]{0,64}[Pp]assw[^'\n]{0,64}'),[ \t]{0,4}["']([^"'\n]{5,128})["']
secret  // #  (?<!(?:sha\d*|hash|commit|digest|sum|rev|tag)["']?[ \t]?[:=][ \t]?)["']([0-9a-f]{32,64})["'][^\n]{0,16}(?://|#)[ \t](?!.{0,40}(?:sha|md5|hash|commit|digest|sum))[^\n]{0,40}(?:secret|(?:api|encryption|signing|hmac|aes|private) key|token|password)(?=\r?\n|$)
password  samba-tool  samba-tool[ \t]user[ \t](?:create|add)[ \t]\S{1,64}[ \t]${VALUE}
password  --encrypt  qpdf[ \t][^\n]{0,64}--encrypt[ \t]${VALUE}[ \t]${VALUE}[ \t]\d
password  using  (?:^|[\n"'\x60;]|db2)[ \t]{0,8}connect[ \t]to[ \t]\S{1,64}[ \t]user[ \t]\S{1,64}[ \t]using[ \t]${VALUE}
password  airportnetwork  -setairportnetwork[ \t]\S{1,32}[ \t](?:"[^"\n]{1,32}"|\S{1,32})[ \t]${VALUE}
password  aterial  key[Mm]aterial["']?[=>]["']?([^\s"'<$]{5,128})
password    mc[ \t](?:alias[ \t]set|config[ \t]host[ \t]add)(?:[ \t]{1,4}\S{1,128}){3}[ \t]{1,4}${VALUE}
password  @  (?:^|\n)(?:\[?[\w.-]{1,128}\]?(?::\d{1,5})?[ \t]{1,8})?[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}:(?=\S{0,128}\d)(?=\S{0,128}[A-Za-z])([^\s/:]{8,128})(?=\r?\n|$)
secret  ://  https?://(?!\S{0,64}vault\.azure)[^\s?#]{1,160}[/-](?:(?:[\w-]{0,24}(?:reset|invit|activat|verif|confirm|recover|magic)|hook|webhook|incoming|private|secret|token|share|join|feed)[\w-]{0,24}(?:/[\w=-]{1,24})?/|private-)(?=[\w.-]{0,64}\d)([A-Za-z0-9_.=-]{16,512})
password  DENTIFIED dentified  (?:IDENTIFIED[ \t]{1,4}(?:WITH[ \t]{1,4}\S{1,64}[ \t]{1,4})?(?:BY|AS)|identified[ \t]{1,4}by)[ \t]{1,4}(?:PASSWORD[ \t]{1,4})?["']([^"'\n]{4,256})["']
password  IDENTIFIED  IDENTIFIED[ \t]{1,4}BY[ \t]{1,4}([^\s"';:$]{5,128})
password  crypt(  (?<![A-Za-z])crypt\([ \t]?'([^'\n]{4,128})'
password  PASSWORD  (?:WITH|ENCRYPTED|USER[ \t]{1,4}[\w"]{1,64}|ROLE[ \t]{1,4}[\w"]{1,64})[ \t]{1,4}(?:LOGIN[ \t]{1,4})?PASSWORD[ \t]{0,4}=?[ \t]{0,4}[NE]?'([^'\n]{4,256})'
password  SecureString  ConvertTo-SecureString[ \t]{1,4}(?:-String[ \t]{1,4})?["']([^"'\n$]{4,256})["']
password  Credential PasswordToken PasswordAuthentication Auth auth login  (?:Credentials?(?:::new|\.(?:of|basic))?|UsernamePasswordToken|PasswordAuthentication|HTTP(?:Basic|Digest|Proxy)Auth|BasicAuth|SetBasicAuth|basic_auth|(?:^|[^\w])auth[ \t]?=[ \t]?|login)\([ \t]{0,4}["'][^"'\n]{1,128}["'](?:\.\w{1,12}\(\)|s)?,[ \t]{0,4}["']([^"'\n]{5,128})["']
password  connect PDO mysqli getConnection ldap_bind .open(  (?:mysqli?_connect|pg_connect|new (?:mysqli|PDO)|getConnection|ldap_bind|DBI->connect|PDO->__construct|\w\.(?:open|connect))\([^,\n]{1,256},[ \t]{0,4}["'][^"'\n]{1,128}["'],[ \t]{0,4}["']([^"'\n]{5,128})["']
secret  lient( lient.new( earch( Api( API( connect( init(  (?:[Cc]lient(?:\.new)?|[Ss]earch|A[Pp][Ii]|connect|init)\([ \t]{0,4}["'][\w.-]{4,64}["'],[ \t]{0,4}["'](?=[^"'\n]{0,64}\d[^"'\n]{0,64}\d)([A-Za-z0-9+/_=-]{20,256})["']
secret  jwt. JWT. jsonwebtoken.  (?:jwt|JWT|jsonwebtoken)\.(?:sign|verify|encode|decode)\([^\n'"]{1,256},[ \t]{0,4}["']([^"'\n]{8,512})["']
secret  createHmac  createHmac\([ \t]{0,4}["'][\w-]{1,16}["'],[ \t]{0,4}["']([^"'\n]{8,512})["']
secret  hmac.new  hmac\.new\([ \t]{0,4}b?["']([^"'\n]{8,512})["']
url_password  @  (?<![\w/:.@-])(?!mailto|sips?:|xmpp|acct|npm:|data:|urn:|javascript)(?:[\w.-]{1,32}[/\\]{1,2})?[A-Za-z][\w.-]{1,32}:(?=\S{0,64}\d)(?=[^\s@]{0,64}[A-Za-z])([^\s:/"'$<{]{5,128})@(?!sha\d)(?:localhost|[a-z][\w-]{0,62}(?:\.[\w-]{1,63}){1,6}|[a-z][\w-]{0,62}:\d{2,5}|\d{1,3}(?:\.\d{1,3}){3})(?![\w.])
password  PLAIN  AUTH[ \t]{1,4}PLAIN[ \t]{1,4}([A-Za-z0-9+/]{8,512}={0,2})
password  334  334 [^\n]{0,64}\n[^\w\n]{0,8}(?:[CS]:? )?([A-Za-z0-9+/]{4,512}={0,2})(?=[ \t]*\r?(?:\n|$))
password  :  (?:^|\n)[\w.*-]{1,128}:(?:\d{4,5}|\*):(?!\d{1,9}:)[\w.*-]{1,64}:[\w.*-]{1,64}:([^\s:]{4,128})(?=\r?\n|$)
cookie  TRUE  (?:^|\n)(?:#HttpOnly_)?[\w.-]{3,128}\t(?:TRUE|FALSE)\t[^\t\n]{1,128}\t(?:TRUE|FALSE)\t\d{1,16}\t[^\t\n]{1,128}\t([^\s]{6,4096})
cookie  -b --cookie  (?<![\w-])(?:-b|--cookie)[ =]["']([\w.-]{1,64}=[^"'\n]{6,4096})["']
cookie  ID SessionId laravel_session connect.sid XSRF Secure- Host- _id sessionid li_at session_ auth_  (?<![A-Za-z0-9])(?:JSESSIONID|PHPSESSID|ASP\.NET_SessionId|ASPSESSIONID\w{1,12}|laravel_session|connect\.sid|XSRF-TOKEN|_?_?(?:Host|Secure)-[\w-]{1,32}|_session_id|sessionid|li_at|auth_session|session_token)=([A-Za-z0-9%+/=_.~:-]{12,4096})
ansible_vault  $ANSIBLE_VAULT  \$ANSIBLE_VAULT;[\w.;-]{1,64}\s{1,4}((?:[0-9a-f]{2,128}\s{0,16}){1,4096})
aws_secret_key  AKIA ASIA  (?:AKIA|ASIA)[A-Z2-7]{16}[^A-Za-z0-9+/]{1,24}(?:[A-Za-z_ ]{0,40}[^A-Za-z0-9+/]{1,8})?([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])
password  7  (?:key|password|secret) 7 ([0-9A-F]{8,64})
secret  :  (?:key|secret|seed|code|password[^\n:]{0,64})s?:[ \t\n]{1,4}(?=[^\n]{0,76}(?:\d|[a-z][A-Z][^\n]{0,8}[a-z][A-Z]))((?:[A-Za-z0-9]{4}[ -]){3,15}[A-Za-z0-9]{4})(?![\w-])
password  WiFi.begin  WiFi\.begin\([^,\n]{1,64},[ \t]{0,4}["']([^"'\n]{5,128})["']
secret    (?:[Mm]nemonic|MNEMONIC|SEED|PHRASE|(?<![A-Za-z])[Ss]eed|[Rr]ecovery|[Pp]hrase|[Ww]allet)[^\n]{0,40}?[:=[(|\n]\s{0,8}[[(]?((?:(?:\d{1,2}[.)][ \t]?)?["']?[a-z]{3,8}["']?[\s,]{1,4}){11,23}(?:\d{1,2}[.)][ \t]?)?["']?[a-z]{3,8})
ntlm_hash  :::  (?<![0-9a-f])[0-9a-f]{32}:([0-9a-f]{32}):::
`
  .trim()
  .split("\n")
  .map((row) => row.split("  "))
  .map(([kind, words, shape]) => ({
    kind,
    words: words === "" ? [] : words.split(" "),
    shape: new RegExp(shape, "dg"),
  }));

interface SecretShape {
  readonly kind: string;
  readonly words: readonly string[];
  readonly shape: RegExp;
}

/** A word at the end of a line that is about a password, or alone on a line after it. */
const ANNOUNCED =
  /pass(?:word|phrase)(?:[^\n\\]|\\(?!n)){0,120}(?:[:=][ \t]{1,8}|:\s{1,8}|\n(?:[a-z]{1,12} )?value[ \t]{0,4}:[ \t]{1,8})["'`]?([^\s/()"'`]{8,128})["'`,;]{0,2}(?=[ \t]{0,4}(?:\r?\n|$))/dgi;

/** Sentences and lists of codes that let in once. */
const CODE =
  /(?<![A-Za-z])(?:pin(?:[ \t]code)?|пин(?:-?код)?|otp|tan|passcode|einmal(?:code|passwort)|bestätigungscode|code de vérification|código de verificación|código de verificação|codice di verifica|код подтверждения|验证码|認証コード|인증 ?번호|(?:verification|one-time|login|authentication|sign-in|2fa|mfa|otp|sms)[ \t](?:pass)?code)(?:[ \t]for[ \t][\w ]{1,24})?[ \t]?(?:is|ist|lautet|es|est|:|：|=|是|は)[ \t]?(\d{3}-\d{3}|\d{4,8})(?!\d)|(?:use|enter)[ \t](?:the[ \t])?code[ \t](\d{4,8})(?!\d)|(?<!\d)(\d{4,8})[ \t]is[ \t]your[ \t][\w ]{1,40}code/dgi;
const CODES = new RegExp(
  `(?:${String.raw`(?:recovery|back-?up|scratch|rescue|emergency|wiederherstellungs|ersatz|sicherungs|notfall|herstel)[ _-]?(?:(?:verification|login|2fa|mfa)[ _-])?codes?|codes? (?:de |d['’])(?:secours|récupération|sauvegarde|urgence)|c[óo]digos? de (?:respaldo|recuperaci[óo]n|emergencia|backup|recupera[çc][ãa]o|reserva)|codic[ei] di (?:backup|recupero|riserva|emergenza|ripristino)|резервн\S{1,4} код|код\S{0,3} восстановления|kod\S{0,3} (?:zapasow[ye]|odzyskiwania)|(?:yedek|kurtarma) kod\S{0,4}|(?:备用|备份|恢复|備用)(?:验证|登录)?代?[码碼]|(?:バックアップ|リカバリー|回復|復旧)用?コード|(?:백업|복구) ?코드|mã (?:dự phòng|khôi phục)`})` +
    String.raw`(?![a-z])[^\n]{0,80}?(?:[:=\n：]|[ \t](?:is|are|ist|lautet|lauten|es|son|est|sont|são|sono)(?=[ \t])|[ \t](?=\d{4} \d{4}|[A-Za-z0-9]{4,6}-[A-Za-z0-9]{4,6})|は|是)`,
  "gi",
);
/** A line with one code, or one word of a list. */
const ONE_CODE =
  /(?:[\s,;"'`[\]*•-]|\d{1,2}[.)][ \t]|(?:and|und|et|y|e|и)[ \t]){0,12}(?:((?<=\n[ \t*•-]{0,8})[A-Za-z0-9]{3,12}(?:[- ][A-Za-z0-9]{3,12}){0,7}(?=[ \t]*(?:\r?\n|$)))|(\d{3,5}(?:[ -]\d{3,5}){1,5}|[A-Za-z0-9]{3,12}(?:[- ]?[A-Za-z0-9]{3,12}){0,7}?))(?![A-Za-z0-9]|[.@/:_-][A-Za-z0-9])/dy;

/** Yields the secrets of commands and similar texts. */
export function* findLogins(text: string): Generator<SecretSpan> {
  // Options are rarer than names of programs.
  if (/[ \t](?:-(?:h?p|a|w|P|k|c|pass|ApiKey|[AXN]|pw|t|-access-token)|\/[rR]?[pP] )/.test(text))
    for (const [program, option] of PROGRAMS)
      for (const { 0: found, index } of text.matchAll(program)) {
        const from = index + found.length;
        const rest = /^(?:[^\n|;\\]|\\[\s\S]){0,512}/.exec(text.slice(from, from + LONGEST))?.[0] ?? "";
        for (const match of rest.matchAll(option)) yield* groupsOf(match, "password", from, true);
      }
  for (const { kind, words, shape } of SHAPES)
    for (const match of findMatches(shape, text, words)) yield* groupsOf(match, kind, 0);
  for (const match of findMatches(ANNOUNCED, text)) {
    const isMade =
      isJumpy(match[1]) ||
      isChance(match[1]) ||
      /\d.*[!#$%^&*?<>]|[!#$%^&*?<>].*\d|^(?=.*\d)(?!.*(?:[Pp]ass|Secret|Token))[\w-]{16,}$(?<=(?:[a-z][A-Z\d].*){4})/.test(
        match[1],
      );
    if (isMade && !UUID.test(match[1]) && !TERM.test(match[1])) yield* groupsOf(match, "password", 0);
  }
  for (const match of findMatches(CODE, text)) yield* groupsOf(match, "code", 0);
  for (const { 0: found, index } of findMatches(CODES, text)) yield* codesFrom(text, index + found.length);
}

/** Yields the codes of a list: those with a digit, and those that look like one with a digit. */
function* codesFrom(text: string, at: number): Generator<SecretSpan> {
  const codes: { readonly start: number; readonly end: number; readonly shape: string }[] = [];
  for (let count = 0; count < 32; count++) {
    ONE_CODE.lastIndex = at;
    const match = ONE_CODE.exec(text);
    const [start, end] = match?.indices?.[1] ?? match?.indices?.[2] ?? [0, 0];
    // A year and a number are not a login.
    if (!match || end - start < 6) break;
    codes.push({ start, end, shape: text.slice(start, end).replace(/[A-Za-z0-9]/g, "x") });
    at = end;
  }
  const hasDigit = ({ start, end }: { start: number; end: number }): boolean =>
    /\d.*(?:\d|-)|-.*\d/.test(text.slice(start, end));
  const shapes = new Set(codes.filter(hasDigit).map(({ shape }) => shape));
  for (const { start, end, shape } of codes) if (shapes.has(shape)) yield { start, end, kind: "code" };
}

/** Yields the groups of a match as secrets, except placeholders. `isOption`: only a secret can be there. */
function* groupsOf(match: RegExpExecArray, kind: string, from: number, isOption = false): Generator<SecretSpan> {
  for (let group = 1; group < match.length; group++) {
    const [start, end] = match.indices?.[group] ?? [0, 0];
    const value = match[group];
    if (!value || /^(?:\d{1,5}(?::\d{1,5})?|[\w.-]{1,4}|env:\w+|file:.*|-.*)$/.test(value)) continue;
    const isWhole = /^[A-Za-z0-9!@#$%^&*]{4,}$/.test(value) || (isOption && /^(?=.*\d)[ -~]+ [ -~]+$/.test(value));
    if (kind === "password" && !canBeSecret(value, "password", "setting") && !isWhole) continue;
    if (kind === "password" && NO_VALUE.test(value)) continue;
    if (kind === "secret" && (WORDS.test(value) || (!/\d/.test(value) && value.length < 20))) continue;
    yield { start: from + start, end: from + end, kind };
  }
}
