// The configuration of the released tests of @confluentinc/schemaregistry, with the URL of the
// environment in the place of localhost:8081.
'use strict'
const baseURLs = [process.env.ODRADEK_CONFORMANCE_REGISTRY]
const clientConfig = {
  baseURLs,
  isForward: false,
  cacheCapacity: 512,
  cacheLatestTtlSecs: 60,
  createAxiosDefaults: { timeout: 10_000 },
  basicAuthCredentials: { credentialsSource: 'USER_INFO', userInfo: 'a user:a password' },
}

module.exports = { clientConfig }
