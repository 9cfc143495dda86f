// Runs the released end-to-end tests of @confluentinc/schemaregistry, unmodified.
'use strict'
module.exports = {
  rootDir: `${__dirname}/node_modules/@confluentinc/schemaregistry/dist/e2e`,
  roots: ['<rootDir>'],
  testEnvironment: 'node',
  testPathIgnorePatterns: [],
  testMatch: ['**/*.spec.js'],
  transform: {},
  haste: { retainAllFiles: true },
  moduleNameMapper: {
    '^@confluentinc/kafka-javascript$': `${__dirname}/kafka-javascript.js`,
    '/test/test-constants$': `${__dirname}/test-constants.js`,
  },
}
