-- API keys. Their tokens are nowhere, only the hashes.
CREATE TABLE keys (
	name TEXT PRIMARY KEY,
	hash BLOB NOT NULL UNIQUE, -- SHA-256 of the token
	doc TEXT NOT NULL
) STRICT;

-- Webhooks. cursor is the number of the last event that is delivered or given up.
CREATE TABLE webhooks (
	id TEXT PRIMARY KEY,
	cursor INTEGER NOT NULL,
	failed INTEGER NOT NULL DEFAULT 0, -- events given up
	secret BLOB NOT NULL,
	doc TEXT NOT NULL
) STRICT;
