-- What happened, in order. Old rows are removed by their number.
CREATE TABLE events (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	time INTEGER NOT NULL,     -- Unix time in nanoseconds
	kind TEXT NOT NULL,
	owner TEXT NOT NULL,
	sandbox TEXT NOT NULL,
	data TEXT NOT NULL         -- JSON, '' for none
) STRICT;
CREATE INDEX events_owner ON events (owner, seq);
