// An issuer of tokens for tests: `node issuer.mjs PORT AUDIENCE REDIRECT_URI`. It writes a line when it listens.
//
// Whoever signs in is who they say they are, with the groups in their name: `alice.engineers` has `engineers`.
// Below /test/ the tests order what no honest issuer does: any token, other keys, delays.

import { createServer } from "node:http";
import * as jose from "jose";
import Provider from "oidc-provider";

const [port, audience, redirectUri] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
let generation = 0;
let delay = 0;
let provider, handle, signer;

async function renew() {
  generation += 1;
  const { privateKey } = await jose.generateKeyPair("RS256", { extractable: true });
  const jwk = { ...(await jose.exportJWK(privateKey)), kid: `key-${generation}`, use: "sig", alg: "RS256" };
  signer = { privateKey, jwk };
  provider = new Provider(issuer, {
    clients: [{
      client_id: "paddock",
      token_endpoint_auth_method: "none",
      application_type: "native",
      grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
      redirect_uris: [redirectUri],
    }],
    jwks: { keys: [jwk] },
    cookies: { keys: ["of the tests"] },
    claims: { openid: ["sub"], groups: ["groups"] },
    scopes: ["openid", "offline_access", "groups"],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: id.split(".").slice(1) }) }),
    extraTokenClaims: (_, token) => ({ groups: (token.accountId ?? "").split(".").slice(1) }),
    issueRefreshToken: async () => true,
    rotateRefreshToken: true,
    ttl: { AccessToken: 300, AuthorizationCode: 60, IdToken: 300, RefreshToken: 3600, DeviceCode: 300, Session: 3600, Grant: 3600, Interaction: 600 },
    features: {
      devInteractions: { enabled: true },
      deviceFlow: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => audience,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: "openid groups", audience, accessTokenFormat: "jwt", accessTokenTTL: 300, jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
  handle = provider.callback();
}

const read = async (request) => {
  let body = "";
  for await (const part of request) body += part;
  return body ? JSON.parse(body) : {};
};

async function ordered(path, body) {
  if (path === "/test/renew") await renew();
  if (path === "/test/delay") delay = body.ms;
  if (path === "/test/jwk") return (({ d, p, q, dp, dq, qi, ...rest }) => rest)(signer.jwk);
  if (path === "/test/token") {
    const { header, claims } = body;
    return { token: await new jose.SignJWT(claims).setProtectedHeader({ alg: "RS256", kid: signer.jwk.kid, ...header }).sign(signer.privateKey) };
  }
  return {};
}

await renew();
createServer(async (request, response) => {
  if (request.url.startsWith("/test/")) {
    const found = await ordered(request.url, await read(request));
    response.setHeader("Content-Type", "application/json");
    return response.end(JSON.stringify(found));
  }
  if (delay) await new Promise((resolve) => setTimeout(resolve, delay));
  return handle(request, response);
}).listen(Number(port), "127.0.0.1", () => console.log("listens"));
