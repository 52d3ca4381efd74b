/* Which row each raw id has, in some parts of a table (id_rows.py): a hash map, and a queue of those that may lose theirs.

   n rows here, in parts of `size` rows each; a row is a number from 0 to n - 1, and a part has those that follow its first.
   Slots hold rows by the hash of their ids, with linear probing; places behind a removed one move up. The queue of a part is a
   heap of rows by (a, b, id), the first of which loses its id first. Seeing an id only raises its keys, so that the heap keeps
   keys as they were, and brings those at its top up to date when a row is wanted: a lookup costs the same in tables of any size. */
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

typedef int64_t i64;
typedef int32_t i32;
typedef uint32_t u32;
typedef uint64_t u64;

enum { LFU, LRU, AGE, NONE };                              /* as id_rows.py numbers them */
enum { NO_ROW = -1, ALL_HELD = -2 };                       /* instead of a row: that of unknown ids; none can be had */

static u64 mixed(u64 word) {                               /* the finalizer of SplitMix64 */
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

static i64 below(u64 word, i64 count) { return (i64)(((word >> 32) * (u64)count) >> 32); }
static i64 part_of(i64 id, i64 parts) { return below(mixed((u64)id + 0x9E3779B97F4A7C15u), parts); }
static i64 home_of(i64 id, i64 slots) { return below(mixed((u64)id + 0x3C6EF372FE94F82Au), slots); }

/* --- a hash map from ids to places -------------------------------------------------------------------------------- */

typedef struct { i32 *slots; i64 count; const i64 *ids; } Map;

static i64 slot_of(const Map *map, i64 id) {               /* where it is, or would be put */
    i64 at = home_of(id, map->count);
    while (map->slots[at] >= 0 && map->ids[map->slots[at]] != id) at = at + 1 < map->count ? at + 1 : 0;
    return at;
}

static void take_out(Map *map, i64 at) {
    i64 next = at;
    for (;;) {
        next = next + 1 < map->count ? next + 1 : 0;
        if (map->slots[next] < 0) break;
        i64 home = home_of(map->ids[map->slots[next]], map->count);
        int stays = at <= next ? at < home && home <= next : at < home || home <= next;
        if (stays) continue;
        map->slots[at] = map->slots[next];
        at = next;
    }
    map->slots[at] = -1;
}

/* --- the queue of a part ------------------------------------------------------------------------------------------ */

typedef struct {
    Map rows, waiting;
    i64 *ids, *waiting_ids, *used, *queued, *next;         /* used, queued, next: of each part */
    u32 *seen, *last, *born, *a, *b, *times;
    i32 *queue;
    i64 size, parts, ranks, policy, admit, step;
} Table;

static int before(const Table *t, i32 x, i32 y) {
    if (t->a[x] != t->a[y]) return t->a[x] < t->a[y];
    if (t->b[x] != t->b[y]) return t->b[x] < t->b[y];
    return t->ids[x] < t->ids[y];
}

static void sink(const Table *t, i32 *heap, i64 count, i64 at) {
    i32 row = heap[at];
    for (i64 child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(t, heap[child + 1], heap[child])) child++;
        if (!before(t, heap[child], row)) break;
        heap[at] = heap[child];
    }
    heap[at] = row;
}

static int brought_up(Table *t, i32 row) {                 /* whether its keys were as they are */
    u32 a = t->policy == LFU ? t->seen[row] : t->policy == LRU ? t->last[row] : t->born[row];
    u32 b = t->policy == LFU ? t->last[row] : t->policy == LRU ? t->seen[row] : 0;
    int same = t->a[row] == a && t->b[row] == b;
    t->a[row] = a, t->b[row] = b;
    return same;
}

static void enqueue(Table *t, i64 part, i32 row) {
    i32 *heap = t->queue + part * t->size;
    i64 at = t->queued[part]++;
    brought_up(t, row);
    for (i64 above; at && before(t, row, heap[above = (at - 1) / 2]); at = above) heap[at] = heap[above];
    heap[at] = row;
}

static i32 dequeue(Table *t, i64 part) {
    i32 *heap = t->queue + part * t->size, row = heap[0];
    heap[0] = heap[--t->queued[part]];
    if (t->queued[part]) sink(t, heap, t->queued[part], 0);
    return row;
}

typedef struct { i32 *rows; i64 count, room; } Held;       /* rows of the batch at hand, which are out of their queues */

static int hold(Held *held, i32 row) {
    if (held->count == held->room) {
        i64 room = held->room ? 2 * held->room : 256;
        i32 *rows = realloc(held->rows, (size_t)room * sizeof *rows);
        if (!rows) return 0;
        held->rows = rows, held->room = room;
    }
    held->rows[held->count++] = row;
    return 1;
}

static i64 freed(Table *t, i64 part, Held *held) {         /* the row whose id goes first; ALL_HELD; -3: no memory */
    i32 *heap = t->queue + part * t->size;
    while (t->queued[part]) {
        if (!brought_up(t, heap[0])) sink(t, heap, t->queued[part], 0);
        else if (t->last[heap[0]] != (u32)t->step) return dequeue(t, part);
        else if (!hold(held, dequeue(t, part))) return -3;
    }
    return ALL_HELD;
}

/* --- ids that wait ------------------------------------------------------------------------------------------------ */

static u32 sum(u32 x, i64 more) { return more >= (i64)(UINT32_MAX - x) ? UINT32_MAX : x + (u32)more; }

static u32 waited(Table *t, i64 part, i64 rows, i64 id, i64 times) {  /* how often it was seen; it waits, or is admitted */
    i64 at = slot_of(&t->waiting, id), place = t->waiting.slots[at];
    u32 seen = sum(place < 0 ? 0 : t->times[place], times);
    if (seen >= t->admit) {
        if (place >= 0) take_out(&t->waiting, at), t->waiting_ids[place] = -1;
    } else if (place >= 0) {
        t->times[place] = seen;
    } else {
        place = part * t->size + t->next[part];
        t->next[part] = t->next[part] + 1 < rows ? t->next[part] + 1 : 0;
        if (t->waiting_ids[place] >= 0) take_out(&t->waiting, slot_of(&t->waiting, t->waiting_ids[place]));
        t->waiting_ids[place] = id, t->times[place] = seen;
        t->waiting.slots[slot_of(&t->waiting, id)] = (i32)place;
    }
    return seen;
}

/* --- what Python calls -------------------------------------------------------------------------------------------- */

#define ARRAYS 23
enum { SLOTS, IDS, SEEN, LAST, BORN, QUEUE, A, B, USED, QUEUED, WSLOTS, WIDS, TIMES, NEXT, NUMBERS, OF_STATE };
static const char SIZES[] = "484444448848488";             /* bytes of an item of each of these arrays */

typedef struct { Py_buffer views[ARRAYS]; int held; void *at[ARRAYS]; i64 lengths[ARRAYS]; } Arrays;

static void release(Arrays *arrays) {
    while (arrays->held) PyBuffer_Release(arrays->views + --arrays->held);
}

/* The arrays of a tuple: those of the state, and `more` of 8 bytes an item. */
static int hold_arrays(PyObject *tuple, int more, Arrays *arrays) {
    int count = OF_STATE + more;
    arrays->held = 0;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_ValueError, "%d arrays are needed", count);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        Py_buffer *view = arrays->views + i;
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, i), view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) break;
        arrays->held++;
        i64 bytes = i < OF_STATE ? SIZES[i] - '0' : 8;
        if (view->itemsize != bytes) {
            PyErr_Format(PyExc_ValueError, "array %d: %d bytes an item are needed", i, (int)bytes);
            break;
        }
        arrays->at[i] = view->buf;
        arrays->lengths[i] = (i64)(view->len / bytes);
    }
    if (PyErr_Occurred()) release(arrays);
    return !PyErr_Occurred();
}

/* numbers: rows of a part, parts of the table, ranks, policy, admit, step, and rows of the table. */
static Table table_of(Arrays *arrays) {
    void **at = arrays->at;
    const i64 *numbers = at[NUMBERS];
    Table t = {
        .rows = {at[SLOTS], arrays->lengths[SLOTS], at[IDS]}, .waiting = {at[WSLOTS], arrays->lengths[WSLOTS], at[WIDS]},
        .ids = at[IDS], .waiting_ids = at[WIDS], .used = at[USED], .queued = at[QUEUED], .next = at[NEXT], .seen = at[SEEN],
        .last = at[LAST], .born = at[BORN], .a = at[A], .b = at[B], .times = at[TIMES], .queue = at[QUEUE],
        .size = numbers[0], .parts = numbers[1], .ranks = numbers[2], .policy = numbers[3], .admit = numbers[4],
        .step = numbers[5]};
    return t;
}

/* (state, ids, times, rows): the row of each id, and NO_ROW. times: how often each was seen; none: it is only looked up. */
static PyObject *rows_of(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold_arrays(tuple, 3, &arrays)) return NULL;
    Table t = table_of(&arrays);
    const i64 *ids = arrays.at[OF_STATE], *times = arrays.at[OF_STATE + 1], count = arrays.lengths[OF_STATE];
    i64 *rows = arrays.at[OF_STATE + 2];
    int counts = arrays.lengths[OF_STATE + 1] == count;
    for (i64 i = 0; i < count && i < arrays.lengths[OF_STATE + 2]; i++) {
        i64 row = t.rows.slots[slot_of(&t.rows, ids[i])];
        rows[i] = row < 0 ? NO_ROW : row;
        if (counts && row >= 0) t.seen[row] = sum(t.seen[row], times[i]), t.last[row] = (u32)t.step;
    }
    release(&arrays);
    Py_RETURN_NONE;
}

/* (state, ids, times, rows, again): rows for ids that have none, in their order. again: whether another id had the row. */
static PyObject *placed(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold_arrays(tuple, 4, &arrays)) return NULL;
    Table t = table_of(&arrays);
    const i64 *ids = arrays.at[OF_STATE], *times = arrays.at[OF_STATE + 1], *numbers = arrays.at[NUMBERS];
    const i64 count = arrays.lengths[OF_STATE];
    i64 *rows = arrays.at[OF_STATE + 2], *again = arrays.at[OF_STATE + 3];
    Held held = {NULL, 0, 0};
    int room = arrays.lengths[OF_STATE + 2] >= count && arrays.lengths[OF_STATE + 3] >= count;
    for (i64 i = 0; room && i < count; i++) {
        i64 of_table = part_of(ids[i], t.parts), part = of_table / t.ranks;
        i64 left = numbers[6] - of_table * t.size, size = left < t.size ? left : t.size;  /* rows of the part */
        u32 seen = (u32)times[i];
        rows[i] = NO_ROW, again[i] = 0;
        if (t.policy == NONE && t.used[part] >= size) continue;
        if (t.admit > 1 && (seen = waited(&t, part, size, ids[i], times[i])) < t.admit) continue;
        i64 row = part * t.size + t.used[part];
        if (t.used[part] < size) {
            t.used[part]++;
        } else {
            row = freed(&t, part, &held);
            if (row < 0) {
                room = row != -3;
                rows[i] = ALL_HELD;
                continue;
            }
            again[i] = 1;
            take_out(&t.rows, slot_of(&t.rows, t.ids[row]));
        }
        t.ids[row] = ids[i], t.seen[row] = seen, t.last[row] = t.born[row] = (u32)t.step;
        t.rows.slots[slot_of(&t.rows, ids[i])] = (i32)row;
        rows[i] = row;
        room = hold(&held, (i32)row);
    }
    for (i64 i = 0; i < held.count; i++) enqueue(&t, held.rows[i] / t.size, held.rows[i]);
    free(held.rows);
    release(&arrays);
    if (!room) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* (state): slots and queues of the ids that rows and waiting places have. */
static PyObject *made(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold_arrays(tuple, 0, &arrays)) return NULL;
    Table t = table_of(&arrays);
    for (i64 i = 0; i < t.rows.count; i++) t.rows.slots[i] = -1;
    for (i64 i = 0; i < t.waiting.count; i++) t.waiting.slots[i] = -1;
    for (i64 part = 0; part < arrays.lengths[USED]; part++) t.queued[part] = 0;
    for (i64 row = 0; row < arrays.lengths[IDS]; row++) {
        if (t.ids[row] < 0) continue;
        t.rows.slots[slot_of(&t.rows, t.ids[row])] = (i32)row;
        enqueue(&t, row / t.size, (i32)row);
    }
    for (i64 place = 0; place < arrays.lengths[WIDS]; place++)
        if (t.waiting_ids[place] >= 0) t.waiting.slots[slot_of(&t.waiting, t.waiting_ids[place])] = (i32)place;
    release(&arrays);
    Py_RETURN_NONE;
}

/* (state, ids, parts): the part of each id. */
static PyObject *parts_of(PyObject *_, PyObject *tuple) {
    Arrays arrays;
    if (!hold_arrays(tuple, 2, &arrays)) return NULL;
    const i64 *ids = arrays.at[OF_STATE], parts = table_of(&arrays).parts;
    i64 *found = arrays.at[OF_STATE + 1];
    for (i64 i = 0; i < arrays.lengths[OF_STATE] && i < arrays.lengths[OF_STATE + 1]; i++) found[i] = part_of(ids[i], parts);
    release(&arrays);
    Py_RETURN_NONE;
}

/* (ids, [salt, first column], numbers): for each id and column a number from 0 to below 1 in fp32, by rows. */
static PyObject *drawn(PyObject *_, PyObject *tuple) {
    static const i64 SIZE[] = {8, 8, 4};
    Py_buffer views[3];
    int held = 0;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 3) return PyErr_Format(PyExc_ValueError, "3 arrays are needed");
    for (; held < 3; held++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, held), views + held, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) break;
        if (views[held].itemsize != SIZE[held]) {
            PyErr_Format(PyExc_ValueError, "array %d: %d bytes an item are needed", held, (int)SIZE[held]);
            PyBuffer_Release(views + held);
            break;
        }
    }
    if (held == 3) {
        const i64 *ids = views[0].buf, *numbers = views[1].buf, count = (i64)(views[0].len / 8);
        const i64 columns = count ? (i64)(views[2].len / 4) / count : 0;
        float *room = views[2].buf;
        for (i64 i = 0; i < count; i++) {
            u64 row = mixed((u64)ids[i] + (u64)numbers[0]);
            for (i64 j = 0; j < columns; j++)
                room[i * columns + j] = (float)(mixed(row + (u64)(numbers[1] + j) * 0x9E3779B97F4A7C15u) >> 40) * 0x1p-24f;
        }
    }
    while (held) PyBuffer_Release(views + --held);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"drawn", drawn, METH_O, "Numbers of ids and columns."},
    {"rows_of", rows_of, METH_O, "The rows of ids."}, {"placed", placed, METH_O, "Rows for ids that have none."},
    {"made", made, METH_O, "Slots and queues, of ids."}, {"parts_of", parts_of, METH_O, "The parts of ids."}, {0}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_id_rows", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__id_rows(void) { return PyModule_Create(&MODULE); }
