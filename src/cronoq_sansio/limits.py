"""Every fixed limit, with its reason. Limits that an operator may set are in `settings`; these are not configurable.

Sizes are bytes, times are nanoseconds. "spec" is the product's specification of fixed limits (server.md section 1).
"""

from cronoq_sansio.clock import SECOND

# --- what a request may name

MAX_POOL_NAME = 64  #: spec
MAX_RESOURCE_NAME = 64  #: spec
MAX_CONTENT_TYPE = 128  #: spec
MAX_WORKER_NAME = 64  #: spec; characters, longer names are cut
MAX_LOGGED_LABELS = 256  #: characters of a worker's labels in a line of the log; all of them may have 64 kB
MAX_WORKER_MESSAGE = 8_192  #: spec; failure messages are cut to min(this, max_message_bytes / 4)
MAX_MULTIPLIER = 1_000.0  #: spec; a larger factor reaches any maximum in one step
PROTOCOL_VERSION = 3  #: of the worker protocol; older workers are refused (source page, "Protocol version")
MESSAGE_HEADROOM = 1_024  #: a task or output must still fit once ids, names and framing are added around it

MAX_SCHEDULE_NAME = 256  #: spec
MAX_CRON = 256  #: spec; characters of a cron expression
MAX_TIME_ZONE = 64  #: spec

MAX_RECALLED = 1_024  #: encoded tasks without payload and key, and ends of leases, that are remembered …
MAX_RECALLED_SIZE = 512  #: … and their bytes: 2 MiB in all with what Python adds, 12 if each names 80 dependencies
MAX_RECALLED_ANSWERS = 16  #: to Submit, by the id without its last 7 bits: ids follow each other, one or two are in use

MAX_UNCOUNTED = 4 << 10  #: bytes of a message that is parsed before its entries are counted: 0.4 ms of empty tasks …
MAX_UNCOUNTED_TASK = 512  #: … and of a task in a large one: nearly all; 170 dependencies fit, 6 ms for a whole batch …
MAX_UNCOUNTED_INSIDE = 64  #: … and of anything else in it: dependencies, tags
MAX_UNCOUNTED_MEMBER = 256  #: bytes per task that is allowed of a batch whose members are not counted …
MAX_COSTLY_BYTES = 8  #: … as it has no more bytes than that for each with which a task, a tag … may begin: 3 to 8 ms
MAX_OTHER_FIELDS = 1_024  #: unknown ones and repetitions in a message, and some more for each entry; 0.1 ms
MAX_STATUSES = 64  #: entries of one listing's filter: there are twelve statuses
MAX_SEARCHED_NAME = 1_024  #: characters in which a worker's name is looked for: a full message of them takes 2 s

# --- credentials

MIN_TOKEN = 16  #: characters; spec: what has fewer can be guessed
GOOD_TOKEN = 32  #: characters; spec: with fewer the operator is warned

# --- the core

MAX_UNITS = 1_000  #: consequences of one `handle`: about 5 ms of work, so that heartbeats and pings never wait longer
MAX_LANE_GARBAGE = 64  #: ended entries that a queue keeps before it compares them with the live ones and compacts
MAX_NACK_GROUPS = 64  #: worker groups that a refused lease chooses among; more cost time and change nothing
MAX_LIST_SCAN = 10_000  #: tasks that one page of a listing looks at: about 2 ms, then the page says where it is
MAX_LEARNED_KINDS = 1_000  #: kinds per pool whose run times are remembered; the oldest is forgotten first
MAX_DEMANDS = 4_096  #: sets of labels that a pool's tasks require at a time; a slot may serve all, at 3 µs each
MAX_TENANTS = 16_384  #: tenants per class of a pool whose next turn is remembered: about 3 MiB, looked through in 3 ms
MAX_CYCLE_WALK = 20_000  #: dependencies that are followed to rule out a cycle: 6 ms for a task, 80 ms for a batch
MAX_BATCH_EDGES = 20_000  #: dependencies of one batch, which is admitted in one go: about 0.1 s
EDGE_BYTES = 256  #: what a dependency takes in memory, at least; counts against `limits.max_payload_bytes`
MAX_CYCLE_NAMES = 10  #: members of a cycle that the error names; the rest is counted
MAX_WAITING_SUBMISSIONS = 65_536  #: callers that wait for room in the engine; each holds a specification
MAX_FREE_TRIES = 16  #: full stretches that are passed to name the next free start in a conflict: about 0.2 ms
MAX_RESERVED = 604_800 * SECOND  #: a week: what of a tolerance, and of an estimate, counts in a reservation at most
MAX_HOLD = 300 * SECOND  #: engine.md section 7: a slot is held free for a fixed start for so long at most
MAX_SCHEDULES = 16_384  #: recurring schedules; all may be due in one second, about 1 s of work; a list takes 40 ms
FIRE_UNITS = 20  #: what making one occurrence counts of MAX_UNITS: a search of the calendar and an admission, 0.1 ms
MAX_SCALING_LOOKS = 1_000  #: at the reservations of a pool, for its targets since the last event: 25 ms
CRON_END = 7_258_118_400 * SECOND  #: 2200-01-01; later fires cannot be trusted to any rule, and 64 bits end in 2262
CRON_CACHE = 1_024  #: cron expressions whose search is kept for whoever asks for the same: 3 KiB each
MAX_SKIPPED_GAPS = 8  #: skipped times in a row after which a schedule counts as one that never fires: years of gaps
FIRE_BYTES = 4_096  #: bytes of a template for which its occurrence counts one more of MAX_UNITS: 4 MiB in a step
MAX_COUNTED_FIRES = 64  #: fires that passed while nobody served and are counted one by one, 30 µs each
MAX_UNARMED_NAMES = 100  #: schedules that recovery does not arm and that the log names; the rest is a number
MAX_HOPELESS_REASONS = 100  #: reasons for which recovery ends tasks that are counted one by one; the rest is one sum
LISTED_WORKER = 96  #: bytes that one takes in the answer to ListWorkers or Snapshot, without its name and labels …
LISTED_LABEL = 8  #: … and each label beside its texts: tags and lengths
MAX_STORE_LISTS = 16  #: pages that the store is asked for at a time: a call for one task stands behind no more of them
MAX_LISTED = 262_144  #: tasks of pages that wait for the store, about 64 MiB in all; further pages are refused
DEFAULT_PAGE = 100  #: source page, "ListTasks": tasks of a page when the caller names no number
REGISTER_TIMEOUT = 10 * SECOND  #: source page, protocol rule 1
SHUTDOWN_LINGER = 1 * SECOND  #: source page, protocol rule 9: the stream ends about a second after Shutdown
EVENT_BURST = 65_536  #: deliveries of events to watchers at once: about 90 ms of work …
EVENT_RATE = 262_144  #: … and per second, a third of what one core can do; watchers beyond are cut off
MAX_UNREAD_EVENTS = 4_352  #: of one watcher: 4,096 + 256 as in server.md section 3, so that a batch of 1,000 fits whole
OUTBOUND_PER_SLOT = 2  #: one lease and one abort per slot (source page, protocol rule 7) …
OUTBOUND_SPARE = 16  #: … and some room for Registered, Shutdown and slots that changed

# --- budgets per kind of call (server.md, "Decided where the sources disagree")

MAX_WAITS = 65_536  #: a wait costs a timer and an entry and no other resource, so there may be many
MAX_WATCHES = 1_024  #: each may want every event of every task
MAX_WORKER_STREAMS = 4_096  #: each may have leases and a queue; a fleet is larger only with several servers
MAX_UNREGISTERED_STREAMS = 64  #: a worker registers at once; of more of these, a fault or attack, the oldest makes room

# --- connections

PREFACE_TIMEOUT = 5 * SECOND  #: a peer that sent no HTTP/2 preface and SETTINGS by then is something else
HEADERS_TIMEOUT = 10 * SECOND  #: a header block that is not complete by then
FRAME_TIMEOUT = 10 * SECOND  #: any other frame; of DATA MESSAGE_GRACE, and its length at MIN_MESSAGE_RATE
MAX_STRANGERS = 64 << 20  #: bytes of unfinished frames and header blocks of all connections that never had a call …
STRANGER_SPARE = 4 << 10  #: … without those that have no more than this: so a usual first call is never refused for it
IDLE_TIMEOUT = 300 * SECOND  #: a connection without an open stream
STREAM_STALL_TIMEOUT = 30 * SECOND  #: a stream whose unsent bytes or half-received message make no progress
MAX_UNSENT = 1 << 20  #: bytes queued for the socket of one connection
MAX_PROMPT = 128 << 10  #: unsent bytes of a connection up to which an answer is encoded at once
MAX_UNSENT_CONTROL = 64 << 10  #: of these, replies to PING and SETTINGS
MAX_HEADER_BLOCK = 64 << 10  #: raw, over HEADERS and CONTINUATION
MAX_HEADER_LIST = 16 << 10  #: decoded; server.md section 3
MAX_HEADER_FIELDS = 100  #: clients send about ten; Apache stops at 100 too
INITIAL_WINDOW = 64 << 10  #: per stream: the largest frame; HTTP/2's own, which a peer may use at first, is a byte less
MESSAGE_WINDOW = 1 << 20  #: per stream, within a message larger than that; server.md section 3
MAX_UNFINISHED = 256 << 20  #: bytes of messages that are not complete, of all connections; from half of it on they wait
INFLATED_AT_ONCE = 128 << 10  #: bytes that come out of compressed messages in one turn of a connection: 0.1 to 0.9 ms …
INFLATE_INPUT = 8  #: … of which one that goes in counts so many: there are blocks with nothing in them
MAX_WAITING = 256 << 20  #: bytes of answers that their peers do not take, of all connections …
WAITING_SHARE = 4  #: … of what is left of them one connection may have so great a part, so that the next one has some …
WAITING_PART = 512  #: … of which a task counts so many, or a member of a batch: as Python keeps one from the store …
SMALL_ANSWER = 1 << 10  #: … and answers below are not counted: the stream that waits takes as much
MAX_FRAME = 64 << 10  #: of a peer; of the smallest that HTTP/2 allows, 16 KiB, long messages need four times as many
MAX_GRPC_TIMEOUT_DIGITS = 8  #: gRPC over HTTP/2, "TimeoutValue"
MAX_STATUS_MESSAGE = 2_048  #: escaped `grpc-message`; clients accept 8 KiB of trailers in all
CONNECTION_WINDOW = 4 << 20  #: for DATA of all streams; given back as it is read, memory is bounded elsewhere
MAX_CLOSED_STREAMS = 4_096  #: ended streams whose late frames are told apart from a broken peer's
ENCODER_TABLE = 4_096  #: our header compression table, whatever the peer would allow
STALL_SCAN = 10 * SECOND  #: how often stalled streams are looked for; they end within 30 .. 40 s
MIN_MESSAGE_RATE = 240  #: bytes per second of an unfinished message or an unsent answer, as in Kestrel; Apache: 500 …
MIN_MESSAGES_RATE = 16 << 10  #: … but no more than this of all of a connection, each way: 1,000 may share a link …
MESSAGE_GRACE = 30 * SECOND  #: … and each may be so far behind: with nearly nothing it ends after 40 .. 50 s
STREAM_LINGER = 10 * SECOND  #: a peer that was answered early may take so long to end its side of the stream
LATE_TIMER = 2 * SECOND  #: a connection's timer that is later says that the process could not read meanwhile
READ_SIZE = 80 << 10  #: one read of a socket, a turn of a connection: a frame and more; larger ones cost page faults
MIN_READ = 4 << 10  #: one read of a connection whose reads cost more than MAX_TURN: 1 ms of the smallest frames
MAX_TURN = SECOND // 1_000  #: of work for one read; beyond, the next one is half as large: others wait meanwhile
LOOK_SHARE = 3  #: calls that look at much have a third of the time: of half of it every second other call felt them …
MAX_LOOK_PAUSE = SECOND // 10  #: … and after one others have so long at most: the largest, all schedules, takes 40 ms
TLS_HANDSHAKE_TIMEOUT = 5 * SECOND  #: beside the preface's time: two or three round trips
TLS_RECORD = 16 << 10  #: plaintext of one record; RFC 8446 section 5.1 allows no more
MAX_TLS_UNSENT = 64 << 10  #: ciphertext of one connection that the socket has not taken; beyond, no plaintext is taken
MAX_HTTP_CONNECTIONS = 256  #: health checks are few and must not use up gRPC's files; the oldest one makes room
HTTP_IDLE_TIMEOUT = 10 * SECOND  #: server.md section 2: for the head of a request, and between two requests
HTTP_BUSY_TIMEOUT = 30 * SECOND  #: a connection that always has a request open: its peer does not read or never ends
HTTP_SEND_TIMEOUT = 5 * SECOND  #: one write to a peer that does not read
MAX_HTTP_DISCARD = 64 << 10  #: body bytes that are read before a refusal, so that a reset does not overtake the answer
HTTP_STREAMS = 32  #: open requests of one HTTP/2 connection
HTTP_READ_SIZE = 16 << 10  #: one read: what it brings is handled at once
HTTP_FRAMES = 100  #: HTTP/2 frames of one connection at once: a check of health takes about five …
HTTP_FRAME_RATE = 50  #: … and per second: each costs up to 0.1 ms
HTTP_LINES = 1_000  #: lines of HTTP/1.1 of one connection at once, those of chunks among them: a check takes ten …
HTTP_LINE_RATE = 100  #: … and per second

# --- floods: frames that cost us something and carry nothing (wire/floods.py); BURST at once, RATE per second

RESET_SPARE = 200  #: resets at once beyond one for each stream at a time: 1,000 calls may have one deadline …
RESET_RATE = 33  #: … and per second; ours count that the peer has caused
FIRST_REFUSALS = 1_000  #: streams too many of a peer that has not read our limit yet; each costs 13 bytes
PING_BURST = 20  #: full again whenever HEADERS or DATA went out: a Go client measures the path with them …
PING_RATE = 1  #: … up to 482 a second with messages of 64 KiB, and asks whether we live every 10 s at most
SETTINGS_BURST = 20  #: clients send one, and one more when their windows grow; GOAWAYs count as well …
SETTINGS_RATE = 1  #: … and nobody needs more of them for long
MAX_SETTINGS = 32  #: entries of one SETTINGS frame, as in nghttp2; a window that changes costs work for every stream
WINDOW_UPDATES = 1_000  #: as many at first, and then …
WINDOW_UPDATES_PER_FRAME = 10  #: … for each frame of DATA that was sent; Node sends 13,454 for 250 MiB …
WINDOW_UPDATE_BYTES = 16  #: … and for so many bytes of it: grpcio sends one for each of many messages in a frame …
WINDOW_UPDATES_PER_STREAM = 2  #: … and for each stream that was opened
PRIORITIES_PER_STREAM = 100  #: of PRIORITY, of unknown types, and of tiny DATA after the answer: nothing means anything
UNKNOWN_BYTES = 1_024  #: bytes of a frame of unknown type that count as one more: else it would pay for many reads
EMPTY_DATA_BURST = 1_000  #: frames of DATA without a byte that do not end their stream …
EMPTY_DATA_RATE = 33  #: … of which no client sends any on purpose
TINY_DATA = 256  #: DATA of fewer bytes that completes no message costs more than it brings: messages are sent whole …
TINY_DATA_PER_MESSAGE = 4  #: … but for their five bytes of head, and what windows cut off: so many are no matter …
GOOD_DATA = 4 << 10  #: … and so many again after a piece of this size: a window may have cut off the rest of it …
TINY_DATA_BURST = 1_000  #: … and beyond that so many at once: somebody tries how messages may be cut …
TINY_DATA_RATE = 33  #: … and per second, as of empty ones
TINY_READ = 512  #: a read of fewer bytes that completes no frame; a segment of TCP has 536, a record of TLS as many …
TINY_READS_PER_FRAME = 2  #: … but for the end of a segment, and a head that is sent apart: so many are no matter …
TINY_READ_BURST = 1_000  #: … one more for each larger read, and beyond that so many at once: five calls byte by byte …
TINY_READ_RATE = 10  #: … and per second: nobody means to, and each costs as much as a small call
MIN_USEFUL_DATA = 256  #: DATA that a window cuts to less pays for no WINDOW_UPDATE: clients open theirs by kilobytes
REFUSED_BURST = 200  #: calls that are refused for their headers on a connection that never had one admitted …
REFUSED_RATE = 10  #: … and per second: a client whose credentials are wrong tries that a few times, not for ever
MAX_CONTINUATIONS = 64  #: frames of one header block; of the usual size four are as much as is allowed

# --- peers, by address (wire/peers.py); precedents are the penalties of OpenSSH for sources of connections

PEER_USELESS_BURST = 10_000  #: useless frames (resets, PINGs …) of ended connections before an address is kept out …
PEER_USELESS_RATE = 1_000  #: … of which so many are forgiven per second: each costs 10 to 20 µs
PEER_USELESS_DEBT = 70_000  #: no more is held against an address, so that it is kept out for a minute at most
USELESS_CONNECTION = 500  #: what a connection that is closed for such frames counts besides: it costs as much again
USELESS_BREACH = 100  #: what one counts that ends because it broke a rule of HTTP/2: a hundred at once, ten a second
USELESS_VISIT = 10  #: what a connection counts of which no call or worker's message was complete: 0.1 to 0.2 ms
USELESS_HANDSHAKE = 40  #: what a TLS handshake counts that came to nothing: 0.4 to 0.9 ms
USELESS_SETTINGS = 10  #: what a SETTINGS frame counts: it may change the windows of all streams
USELESS_READ = 3  #: what a small read counts that completes nothing: 30 to 50 µs
PEER_PAUSE = 60 * SECOND  #: between two lines of the log about one limit and address
MAX_LOGGED_PEERS = 20  #: limits and addresses that are told in that time: an attack has many addresses
MAX_PAST_PEERS = 10_000  #: addresses that are remembered although nobody is connected from there, 300 bytes each
MAX_CLOSE_DISCARD = 4 << 20  #: bytes that are read after our last words: what a peer may have on its way
SPARE_FILES = 256  #: open files beyond one for each connection: store, listeners, health checks, time zones

# --- clients

CLIENT_MAX_RECEIVE = 16 << 20  #: what servers send at most unless configured otherwise (`limits.max_message_bytes`)
CLIENT_PING_INTERVAL = 30 * SECOND  #: a silent server with open calls is asked after this: a dead host is noticed …
CLIENT_PING_TIMEOUT = 10 * SECOND  #: … so much later
CLIENT_CONNECT_TIMEOUT = 10 * SECOND  #: address look-up, TCP, TLS and HTTP/2 together; a server that is there needs 1 s
CLIENT_PART_TIMEOUT = 1 * SECOND  #: last words of a client; a server that does not take them loses nothing
CLIENT_WINDOW = 1 << 20  #: per stream; a client chooses its server, and a reply comes without a round trip per 64 KiB
CLIENT_UNSENT = 256 << 10  #: unsent bytes of one stream from which on its sender waits
MAX_CALL_MOVES = 3  #: how often a call that no server has looked at moves to a fresh connection before it fails
MAX_CALL_REFUSALS = 10  #: how often it is tried again on a connection that refuses it and serves on, as grpcio's does …
REFUSAL_PAUSE = SECOND // 1_000  #: … with more calls at once than it likes: after this, and twice as long each time

# --- workers

MIN_HEARTBEAT = SECOND // 100  #: client.md section 3: a lease is kept alive every third of its ttl, but not more often
WORKER_REGISTER_TIMEOUT = 30 * SECOND  #: a server that says nothing to Register for so long serves nobody
WORKER_SLOT_WAIT = 1 * SECOND  #: a lease waits so long for a cancelled handler to exit before it is given back
WORKER_DRAIN_LINGER = SECOND // 10  #: leases on their way when 0 slots were offered: a round trip over an ocean
WORKER_CUT_WAIT = 5 * SECOND  #: cancelled handlers may report so long before their leases are given back
WORKER_PART_TIMEOUT = 5 * SECOND  #: client.md section 3: the server ends a stream that was closed by its worker
MAX_UNKNOWN_KINDS = 1_000  #: kinds without a handler that are remembered, so that each is logged once
MAX_REDIRECTS = 3  #: client.md section 3: in a row; a fourth says that the shards disagree

# --- scenarios, which are run in virtual time

MAX_SCENARIO_RATE = 1_000_000  #: arrivals per second of one entry; a run that has more is too long for any machine
MAX_SCENARIO_TASKS = 10_000_000  #: of a run: 10 minutes of work, and 160 MB for two times of each
MAX_SCENARIO_LIVE = 1_000_000  #: tasks at a time, about 1.5 GB; a run that has more stops and says so
MAX_SCENARIO_EVENTS = 50_000_000  #: of a run, five per task: 25 minutes of work
MAX_SCENARIO_LOOKS = 100_000  #: at the targets of autoscalers in a run, about 0.1 ms each; a day of one per second

# --- the store pipeline

MAX_WAITING_STEPS = 8_192  #: steps that wait for a commit before new work is refused
MAX_WAITING_BYTES = 64 << 20  #: bytes of new tasks, without outputs, that wait for a commit before new work is refused
MAX_WAITING_ROWS = 8_192  #: rows that wait for a commit, about 0.2 s of writing; then cascades wait as well
MAX_COMMIT_ROWS = 32_768  #: a transaction that has so many takes no further step: about 0.8 s, below COMMIT_STALLED
MIN_OUTBOX_SWEEP = 4_096  #: actions that the outbox holds before it looks for those that nobody wants any more
MAX_WAITING_OUTPUT = 256 << 20  #: bytes of outputs; from here on neither calls nor workers get credit: one per lease
COMMIT_STALLED = 1 * SECOND  #: a commit older than this parks lease expiries
COMMIT_PRESSURE = 5 * SECOND  #: a commit older than this refuses new work
MAX_STORE_OUTAGE = 300 * SECOND  #: source page "Store errors"; then the term ends
COMMIT_RETRY_MIN = SECOND // 20  #: source page "Store errors": first pause before a commit is tried again, doubling …
COMMIT_RETRY_MAX = 5 * SECOND  #: … up to this
MAX_COMMIT_TRIES = 5  #: source page "Store errors": tries of a commit that fails in another way than "unavailable"
LOAD_PORTION = 1_000  #: records per portion of recovery
LOAD_EDGES = 20_000  #: dependencies after which such a portion ends early, with the task they belong to
PRUNE_PORTION = 1_000  #: rows per statement of pruning
PRUNE_BYTES = 16 << 20  #: of payloads and outputs per statement of pruning: freeing them reads every page of theirs
PRUNE_INTERVAL = 3_600 * SECOND  #: rows are kept for days, so an hour more makes no difference

# --- the process

MAX_CONFIG_FILE = 1 << 20  #: bytes; a thousand pools need a tenth of it, anything larger is not a configuration
MAX_TOML_DOTS = 32  #: in one key; tables are four deep, and parsing takes the square: a full file of these takes 2 s
TICK = SECOND // 4  #: how often the loop checks its own lateness
STALL = SECOND // 2  #: lateness beyond this means that the process was stopped
SLOW_STEP = SECOND // 4  #: half of that: a step that takes longer may be why the process seems to have been stopped
SLOW_STEP_PAUSE = 10 * SECOND  #: between two such lines: a server that is slow all the time does not fill its log
DROP_PAUSE = 60 * SECOND  #: between two lines about one schedule and reason, which may fail to fire every second
MAX_LOGGED_DROPS = 100  #: schedules and reasons that are told in that time: 100 MB of log a day at most
WORKER_LOG_PAUSE = 60 * SECOND  #: in which there are only so many lines about workers that come and go: …
MAX_LOGGED_WORKERS = 1_000  #: … 300 MB of log a day at most; a restart of 500 workers is told in full …
MAX_LOGGED_WORKERS_OF_PEER = 500  #: … unless they share an address, which has half of the lines
CROWD_HORIZON = 691_200 * SECOND  #: 8 days: schedules that start together in a week's course are found at the start …
CROWD_FIRES = 200  #: … as far as so many fires of each tell
MAX_CROWD_FIRES = 10_000  #: of all schedules in that search: about 0.5 s of work, before the server serves
TERM_RESTART_MIN = 1 * SECOND  #: first pause before a new term after a fault, doubling
TERM_RESTART_MAX = 60 * SECOND  #: … up to this: a cause that passes is noticed within a minute
MAX_TERM_FAULTS = 5  #: that many faulty terms …
TERM_FAULT_WINDOW = 600 * SECOND  #: … within this time end the process
STOP_SLACK = 15 * SECOND  #: a graceful stop takes at most the grace plus this
ACCEPT_PAUSE = SECOND // 10  #: when the process has no free descriptor: a retry at once would spin
CLOSE_LINGER = 1 * SECOND  #: how long a closed connection is read on, so that its last bytes are not lost by a reset
CLOSE_TIMEOUT = 5 * SECOND  #: how long the last bytes of a closed connection may take to leave
WRITE_SIZE = 256 << 10  #: one write to a socket: what a socket buffer takes at once
ACCEPT_BACKLOG = 1_024  #: connections that the kernel keeps until we accept them

# --- recordings

RECORDING_BYTES = 1 << 30  #: of one file, unless `--record-bytes` says otherwise: about 3,000,000 events
MIN_RECORDING_BYTES = 1 << 20  #: what is smaller might not even hold the settings
MAX_RECORDING_FILES = 100  #: of one name; terms that fail again and again do not fill the disk without an end
MAX_RECORDING_LINE = 128 << 20  #: characters of a line: a full message whose every byte needs six of them in JSON fits
MAX_RECORDING_UNWRITTEN = 64 << 20  #: characters that wait for the disk; a slower disk ends the recording, not the term
RECORDING_PAUSE = SECOND // 20  #: between two writes: so much is lost with a process that is killed
RECORDING_CLOSE = 5 * SECOND  #: how long the last lines may take; a disk that hangs does not hold up the next term
RECORDED_PORTION = 100  #: recovered records per line, at most: lines that a person can look at
MAX_RECORDED_POOLS = 10_000  #: and resources, that a replay takes: they cost it 1 s, and 200,000 gigabytes
MAX_RECORDED_ENTRIES = 1 << 20  #: of one array of a recording: what a full message of 16 MiB can bring in 16 bytes each
MAX_RECORDED_NUMBER = (1 << 64) - 1  #: seeds have 64 bits; what is larger was never an id, a time or a number of a term
MAX_RECORDED_OPEN = 524_288  #: calls and worker streams that are open at a time: 250 MB; by the defaults 75,000 can be
MAX_HASHED = 20_000  #: tasks and schedules of a state whose hash is computed: about 0.2 s in which nobody is served
