-- A store of facts that stay true: sqlite3 memory.db < memory.sql
-- `mem0audit audit --memory-db memory.db` reads it beside its writers.
-- Times are whole seconds since 1970, UTC. Every program that writes it: PRAGMA foreign_keys = ON; busy_timeout = 5000.
PRAGMA journal_mode = WAL;
PRAGMA foreign_keys = ON;

CREATE TABLE IF NOT EXISTS memory (
    id            TEXT PRIMARY KEY,
    subject       TEXT NOT NULL,
    fact          TEXT NOT NULL,
    source        TEXT,                 -- a message, file, command or URL; without one a fact cannot be confirmed
    created_at    INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)),
    confirmed_at  INTEGER,              -- when somebody last found it true
    expires_at    INTEGER,              -- for what decays; what drifts is reviewed instead
    last_used_at  INTEGER,
    superseded_by TEXT REFERENCES memory (id) ON DELETE CASCADE,
    superseded_at INTEGER,              -- the mark that stays, whatever becomes of the successor
    CHECK (superseded_by IS NULL OR superseded_at IS NOT NULL),
    CHECK (superseded_by IS NOT id)
);
CREATE INDEX IF NOT EXISTS memory_subject ON memory (subject);
CREATE INDEX IF NOT EXISTS memory_superseded ON memory (superseded_by) WHERE superseded_by IS NOT NULL;

-- What an agent is to read: expired and superseded facts are hidden at once, however late they are removed.
CREATE VIEW IF NOT EXISTS live_memory AS
    SELECT * FROM memory
    WHERE superseded_at IS NULL AND superseded_by IS NULL
      AND (expires_at IS NULL OR expires_at > CAST(strftime('%s', 'now') AS INTEGER));
