PRAGMA foreign_keys = ON;
PRAGMA busy_timeout = 5000;
-- sqlite3 -bail memory.db < memory-prune.sql >/dev/null, after memory-backup.sh. An outdated fact goes before the one that
-- replaced it: deleting a successor takes what it replaced with it (ON DELETE CASCADE), never brings it back.
BEGIN IMMEDIATE;
DELETE FROM memory WHERE superseded_at IS NOT NULL AND created_at < CAST(strftime('%s', 'now') AS INTEGER) - 180 * 86400;
DELETE FROM memory WHERE expires_at <= CAST(strftime('%s', 'now') AS INTEGER);
COMMIT;
