-- A snapshot's files are layers; doc is what else is known. The row of one that
-- has gone stays a while, to say so.
CREATE TABLE snapshots (
	id TEXT PRIMARY KEY,
	name TEXT UNIQUE,            -- NULL for none, and once it has gone
	sandbox TEXT NOT NULL,
	owner TEXT NOT NULL,
	state TEXT NOT NULL,         -- making, ready, gone
	checkpoint INTEGER NOT NULL, -- 1: made on the way
	created INTEGER NOT NULL,    -- Unix time in nanoseconds
	gone INTEGER,                -- when it went
	doc TEXT NOT NULL
) STRICT;
CREATE INDEX snapshots_sandbox ON snapshots (sandbox, created);
CREATE INDEX snapshots_state ON snapshots (state);
