-- Schedules. How far one has come is a row of its own, because every fire replaces it: in the row of the definition it
-- would be written again together with the template, whose payload may have megabytes. All times are wall time in Unix
-- nanoseconds. The template stands last, so that reading the others never follows its overflow pages.

CREATE TABLE cronoq_trio_recurring (
    id         INTEGER PRIMARY KEY, -- another one whenever it is stored anew
    name       TEXT    NOT NULL UNIQUE,
    cron       TEXT    NOT NULL,
    tz         TEXT    NOT NULL, -- '' = UTC
    overlap    INTEGER NOT NULL, -- 1 skip, 2 allow, 3 queue, 4 queue on success
    dst_gap    TEXT    NOT NULL, -- 'shift' or 'skip'
    dst_fold   TEXT    NOT NULL, -- 'first', 'last' or 'both'
    configured INTEGER NOT NULL, -- 1 = it stands in the configuration file
    added      INTEGER NOT NULL, -- fires count from here on
    pool       TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL, -- of every occurrence up to the @; '' = none
    priority   INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    template   BLOB    NOT NULL  -- the rest of the template, see stored_spec.py
);

-- Without a row nothing was dealt with since the schedule was added.
CREATE TABLE cronoq_trio_fired (
    name      TEXT    NOT NULL PRIMARY KEY,
    through   INTEGER NOT NULL, -- every fire up to here has been dealt with
    local     INTEGER NOT NULL, -- its time on the clock of the zone, as if that were UTC; -1 = it was no fire
    last_task INTEGER NOT NULL  -- 0 = none was made yet
) WITHOUT ROWID;
