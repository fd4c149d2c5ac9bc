-- A task is two rows: its specification, written once, and a small state row that each change replaces. A submit writes
-- no state row: without one a task is ready and has never started. All times are wall time in Unix nanoseconds, 0 = not
-- reached. Large columns stand last, so that reading the others never follows their overflow pages.

CREATE TABLE cronoq_trio_leader (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    epoch          INTEGER NOT NULL, -- of the newest term, 0 before the first
    holder         TEXT    NOT NULL, -- random word of the claim, '' after a clean stop
    pid            INTEGER NOT NULL,
    host           TEXT    NOT NULL,
    claimed        INTEGER NOT NULL, -- Unix seconds
    beat           INTEGER NOT NULL, -- Unix seconds at the claim; standbys will watch it
    pruned_through INTEGER NOT NULL  -- highest task id that pruning has deleted
);

INSERT INTO cronoq_trio_leader VALUES (1, 0, '', 0, '', 0, 0, 0);

CREATE TABLE cronoq_trio_tasks (
    id           INTEGER PRIMARY KEY,
    pool         TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    key          TEXT    NOT NULL, -- '' = none
    priority     INTEGER NOT NULL, -- 0 critical … 3 low
    arrival      INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    spec         BLOB    NOT NULL  -- the rest of the specification, see stored_spec.py
);

-- Newest task of a key: the row id is the last part of every index entry.
CREATE INDEX cronoq_trio_tasks_key ON cronoq_trio_tasks (key) WHERE key <> '';

CREATE TABLE cronoq_trio_states (
    id            INTEGER PRIMARY KEY,
    status        INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    due           INTEGER NOT NULL,
    first_started INTEGER NOT NULL,
    last_started  INTEGER NOT NULL,
    finished      INTEGER NOT NULL, -- 0 = live
    message       TEXT    NOT NULL,
    content_type  TEXT,             -- of the output, when it is small enough to stand here
    output        BLOB
);

-- For pruning and for what a new term remembers of finished tasks.
CREATE INDEX cronoq_trio_states_finished ON cronoq_trio_states (finished) WHERE finished > 0;

-- Outputs too large for the state row.
CREATE TABLE cronoq_trio_outputs (
    id           INTEGER PRIMARY KEY,
    content_type TEXT NOT NULL,
    output       BLOB NOT NULL
);

-- Ids of live tasks, so that recovery reads them alone, however many finished ones are kept. A partial index on the
-- state rows cannot do this, because a waiting task has none.
CREATE TABLE cronoq_trio_live (
    id INTEGER PRIMARY KEY
);
