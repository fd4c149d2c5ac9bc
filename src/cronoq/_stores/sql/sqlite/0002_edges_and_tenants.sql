-- Dependencies, and the tenant as a column, so that a listing need not look into specifications.
--
-- A column that is added stands last, and one that stands behind a large column cannot be read without following that
-- one's overflow pages. So later rows have their specification in a new last column and nothing in the old one. Rows
-- that are here keep theirs: nothing is copied, and a large file is migrated as fast as a small one.

ALTER TABLE cronoq_trio_tasks RENAME COLUMN spec TO spec_1; -- of schema 1; empty in later rows
ALTER TABLE cronoq_trio_tasks ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE cronoq_trio_tasks ADD COLUMN spec BLOB; -- NULL in rows of schema 1

-- The dependencies of live tasks, met ones too; they go when the child ends.
CREATE TABLE cronoq_trio_edges (
    child     INTEGER NOT NULL,
    position  INTEGER NOT NULL, -- in the specification, from 0
    parent    INTEGER NOT NULL, -- 0 = nobody has had the key yet
    key       TEXT    NOT NULL, -- the awaited key while parent is 0, else ''
    condition INTEGER NOT NULL, -- 1 on success, 2 on complete, 3 on failure
    PRIMARY KEY (child, position)
) WITHOUT ROWID;

-- For pruning, and for the parents that a new term needs.
CREATE INDEX cronoq_trio_edges_parent ON cronoq_trio_edges (parent) WHERE parent > 0;

-- For a key that appears.
CREATE INDEX cronoq_trio_edges_key ON cronoq_trio_edges (key, child) WHERE parent = 0;
