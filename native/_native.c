/* Prediction of a fitted tree, of many rows or of one whose values are still coming in, and what is bought on the way.
 * Towards the end, learners without some columns (model/averaging.py), and the products of training (paper/codes.py).
 *
 * All walks have a twin in Python (model/fitted.py, model/pool.py, serving/walk) and add in the same order, learner by
 * learner, so that the answers have the same bits.  `Packed` (model/native.py) has checked all positions,
 * columns and categories before they come here; sizes of buffers, and the numbers of learners, outputs and nodes, are
 * checked here.
 *
 * Many rows are walked in blocks: all rows of a block that stand at one node take one weak learner after the other, so
 * that the learner's positions stay in the cache and the walks of several rows overlap.  One row takes several learners
 * at a time, for the same reason.  Only CPython's limited API is used, and the interpreter's lock is released while
 * many rows are walked.
 */
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 128
#define LANES 8      /* learners that one row walks at a time */
#define EARLY_LINES 4 /* of 64 bytes; the upper levels of a learner */
#define FEW_ROWS 3   /* so many are walked one by one */
#define MANY_ROWS 512 /* for so many it pays to look what each learner can buy at all */
#define KEEP_LOCK 64 /* fewer rows are done before another thread could take over the interpreter */

enum { MISSING_LEFT = 1, ZERO_IS_MISSING = 2, CATEGORICAL = 4, LINEAR = 8, INNER = 16, KIND_BITS = 5 };

/* One position of a learner; the layout is that of the record array that Python packs.  It is small, and the positions
 * of a learner stand together, level by level: most of the time of a walk is waiting for them. */
typedef struct {
    double threshold; /* a row goes left if its value is at most this; at a leaf, its output */
    int32_t child;    /* the right one, and the left one stands behind it; a leaf is its own child */
    uint32_t what;    /* the column that is compared (any at a leaf), and the kind */
} Position;

static inline uint32_t feature_at(const Position *here)
{
    return here->what >> KIND_BITS;
}

/* The next position; nobody goes left at a leaf. */
static inline int32_t next_of(const Position *here, int left)
{
    return here->child + (left & (int)(here->what >> 4));
}

/* The next position at a plain comparison. */
static inline int32_t next_plain(const Position *here, const double *row)
{
    double x = row[feature_at(here)];
    return next_of(here, (x <= here->threshold) | ((x != x) & (int)(here->what & MISSING_LEFT)));
}

/* How a learner is walked. */
typedef struct {
    int32_t root;
    int32_t depth;
    uint32_t kinds; /* of all its positions together */
} Learner;

typedef struct {
    const Position *positions;
    const Learner *learners;
    const int32_t *category_start;
    const int32_t *category_count;
    const uint8_t *category_left;
    const uint64_t *bits; /* for each position, the items on the way there; n_words each */
    const uint64_t *most; /* for each learner, all items that it can buy; NULL if there are few rows */
    uint64_t *common;     /* room for what all rows at a node have bought; there if `most` is */
    Py_ssize_t n_words;
    const uint64_t *paths; /* for each position, the features on the way there as bits; NULL if they are too many */
} Pool;

static int goes_left_by_category(const Pool *pool, int32_t at, double x)
{
    int32_t count = pool->category_count[at];
    if (!(x >= 0.0 && x < (double)count)) /* unknown and missing ones go right */
        return 0;
    return pool->category_left[pool->category_start[at] + (int32_t)x];
}

/* Whether a row with this value goes left, whatever kind of split it is. */
static int goes_left(const Pool *pool, int32_t at, double x)
{
    const Position *here = pool->positions + at;
    if (here->what & CATEGORICAL)
        return goes_left_by_category(pool, at, x);
    int missing = x != x;
    if (here->what & ZERO_IS_MISSING)
        missing |= x <= 1e-35 && x >= -1e-35;
    return missing ? (here->what & MISSING_LEFT) != 0 : x <= here->threshold;
}

/* The leaf that one row reaches, whatever kinds of splits the learner has. */
static int32_t walk(const Pool *pool, const Learner *learner, const double *row)
{
    int32_t at = learner->root;
    for (int32_t level = 0; level < learner->depth; level++) {
        const Position *here = pool->positions + at;
        at = next_of(here, goes_left(pool, at, row[feature_at(here)]));
    }
    return at;
}

/* The leaves of many rows in a learner whose splits are all plain comparisons. */
static void walk_plain(const Pool *pool, const Learner *learner, const double **rows, Py_ssize_t n, int32_t *leaves)
{
    const Position *positions = pool->positions;
    Py_ssize_t i = 0;
    for (; i + 4 <= n; i += 4) { /* four rows at a time: their look-ups overlap */
        int32_t a = learner->root, b = a, c = a, d = a;
        for (int32_t level = 0; level < learner->depth; level++) {
            a = next_plain(positions + a, rows[i]);
            b = next_plain(positions + b, rows[i + 1]);
            c = next_plain(positions + c, rows[i + 2]);
            d = next_plain(positions + d, rows[i + 3]);
        }
        leaves[i] = a, leaves[i + 1] = b, leaves[i + 2] = c, leaves[i + 3] = d;
    }
    for (; i < n; i++)
        leaves[i] = walk(pool, learner, rows[i]);
}

static void walk_all(const Pool *pool, const Learner *learner, const double **rows, Py_ssize_t n, int32_t *leaves)
{
    if (learner->kinds & (CATEGORICAL | ZERO_IS_MISSING))
        for (Py_ssize_t i = 0; i < n; i++)
            leaves[i] = walk(pool, learner, rows[i]);
    else
        walk_plain(pool, learner, rows, n, leaves);
}

static double output(const Pool *pool, int32_t leaf, const double *row)
{
    const Position *here = pool->positions + leaf;
    return here->what & LINEAR ? here->threshold * row[feature_at(here)] : here->threshold;
}

/* The sums that nodes route and predict with: for each, its learners and their weights. */
typedef struct {
    const int64_t *start;    /* n_sums + 1 */
    const int32_t *learner;  /* ascending within a sum */
    const int32_t *column;   /* the output that the entry adds to */
    const double *weight;
} Sums;

/* What the rows of a block have in common, one word of it. */
static uint64_t common_of(const uint64_t *bought, const int32_t *at, Py_ssize_t n, Py_ssize_t n_words)
{
    uint64_t common = ~(uint64_t)0;
    for (Py_ssize_t i = 0; i < n; i++)
        common &= bought[at[i] * n_words];
    return common;
}

/* Buy one word of the items at the leaves of some rows; what the rows have in common then. */
static inline uint64_t buy_word(const uint64_t *bits, const int32_t *leaves, const int32_t *at, Py_ssize_t n,
                                Py_ssize_t n_words, uint64_t *bought)
{
    uint64_t common = ~(uint64_t)0;
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t mine = bought[at[i] * n_words] | bits[leaves[i] * n_words];
        bought[at[i] * n_words] = mine;
        common &= mine;
    }
    return common;
}

/* Buy the items at the leaves that some rows reach in a learner.  Most learners can only buy what all of these rows
 * have by then: their items need not be looked up. */
static void buy(const Pool *pool, int32_t number, const int32_t *leaves, const int32_t *at, Py_ssize_t n,
                uint64_t *bought)
{
    const uint64_t *most = pool->most ? pool->most + number * pool->n_words : NULL;
    for (Py_ssize_t word = 0; word < pool->n_words; word++) {
        if (most && !(most[word] & ~pool->common[word]))
            continue;
        uint64_t common = pool->n_words == 1 ? buy_word(pool->bits, leaves, at, n, 1, bought)
                                             : buy_word(pool->bits + word, leaves, at, n, pool->n_words, bought + word);
        if (most)
            pool->common[word] = common;
    }
}

/* Add up one sum at some rows of a block; rows[i] is the row of number at[i] in the block. */
static void add_up(const Pool *pool, const Sums *sums, Py_ssize_t sum, const double **rows, const int32_t *at,
                   Py_ssize_t n, double *totals, Py_ssize_t n_columns, uint64_t *bought)
{
    int32_t leaves[BLOCK];
    double values[BLOCK];
    int32_t last = -1;
    if (bought && pool->most)
        for (Py_ssize_t word = 0; word < pool->n_words; word++)
            pool->common[word] = common_of(bought + word, at, n, pool->n_words);
    for (int64_t entry = sums->start[sum]; entry < sums->start[sum + 1]; entry++) {
        int32_t number = sums->learner[entry];
        if (number != last) {
            const Learner *learner = pool->learners + number;
            walk_all(pool, learner, rows, n, leaves);
            if (learner->kinds & LINEAR)
                for (Py_ssize_t i = 0; i < n; i++)
                    values[i] = output(pool, leaves[i], rows[i]);
            else
                for (Py_ssize_t i = 0; i < n; i++)
                    values[i] = pool->positions[leaves[i]].threshold;
            if (bought)
                buy(pool, number, leaves, at, n, bought);
            last = number;
        }
        double weight = sums->weight[entry];
        double *total = totals + sums->column[entry];
        for (Py_ssize_t i = 0; i < n; i++)
            total[i * n_columns] += values[i] * weight;
    }
}

typedef struct {
    Py_ssize_t n_nodes, n_outputs, n_features;
    const int32_t *upper, *lower; /* a node, or -1 - terminal */
    const double *thresholds;
    const double *intercepts; /* (n_nodes, n_outputs) */
} Shape;

static void leave(const Pool *pool, const Sums *predicts, const Shape *shape, Py_ssize_t node, int32_t terminal,
                  const double **rows, const int32_t *at, Py_ssize_t n, double *margins, int32_t *terminals,
                  uint64_t *bought, double *totals)
{
    Py_ssize_t k = shape->n_outputs;
    memset(totals, 0, sizeof(double) * n * k);
    add_up(pool, predicts, node, rows, at, n, totals, k, bought);
    for (Py_ssize_t i = 0; i < n; i++) {
        for (Py_ssize_t j = 0; j < k; j++)
            margins[at[i] * k + j] = totals[i * k + j] + shape->intercepts[node * k + j];
        terminals[at[i]] = terminal;
    }
}

/* Send one block of rows down the tree.  A node's rows are a stretch of `order`; children take parts of it. */
static void run_block(const Pool *pool, const Sums *routes, const Sums *predicts, const Shape *shape, const double *X,
                      Py_ssize_t n_features, Py_ssize_t n, double *margins, int32_t *terminals, uint64_t *bought,
                      double *totals, int32_t *begins, int32_t *ends)
{
    const double *rows[BLOCK], *moved_rows[BLOCK];
    int32_t order[BLOCK], moved[BLOCK];
    for (Py_ssize_t i = 0; i < n; i++) {
        order[i] = (int32_t)i;
        rows[i] = X + i * n_features;
    }
    for (Py_ssize_t node = 0; node < shape->n_nodes; node++)
        begins[node] = ends[node] = 0;
    ends[0] = (int32_t)n;
    for (Py_ssize_t node = 0; node < shape->n_nodes; node++) { /* parents come before their children */
        Py_ssize_t begin = begins[node], count = ends[node] - begin;
        if (count <= 0)
            continue;
        int32_t up = shape->upper[node], low = shape->lower[node];
        const double **here = rows + begin;
        int32_t *at = order + begin;
        if (up == low) {
            leave(pool, predicts, shape, node, -1 - up, here, at, count, margins, terminals, bought, totals);
            continue;
        }
        memset(totals, 0, sizeof(double) * count);
        add_up(pool, routes, node, here, at, count, totals, 1, bought);
        Py_ssize_t above = 0, below = 0;
        for (Py_ssize_t i = 0; i < count; i++)
            above += totals[i] > shape->thresholds[node];
        Py_ssize_t to_up = 0;
        below = above;
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_ssize_t to = totals[i] > shape->thresholds[node] ? to_up++ : below++;
            moved[to] = at[i];
            moved_rows[to] = here[i];
        }
        memcpy(at, moved, sizeof(int32_t) * count);
        memcpy(here, moved_rows, sizeof(double *) * count);
        int32_t children[2] = {up, low};
        Py_ssize_t from[3] = {0, above, count};
        for (int side = 0; side < 2; side++) {
            Py_ssize_t first = from[side], size = from[side + 1] - first;
            if (!size)
                continue;
            if (children[side] >= 0) {
                begins[children[side]] = (int32_t)(begin + first);
                ends[children[side]] = (int32_t)(begin + first + size);
            } else {
                leave(pool, predicts, shape, node, -1 - children[side], here + first, at + first, size, margins,
                      terminals, bought, totals);
            }
        }
    }
}

/* -- one row ----------------------------------------------------------------------------------------------------- */

/* Take LANES learners of one row some levels down, where all splits are plain comparisons: their look-ups overlap.
 * A leaf is its own child, so learners of different depths stay in step without asking.  Called with constants for
 * `missing` (the row may miss values) and `partly` (some are not known yet: who needs one of them stays). */
static inline void step_down(const Position *positions, const double *row, const uint8_t *known, int32_t *at,
                             int32_t depth, int missing, int partly)
{
    int32_t here[LANES];
    memcpy(here, at, sizeof here);
    for (int32_t level = 0; level < depth; level++) {
        int32_t moved = 0;
        for (int lane = 0; lane < LANES; lane++) {
            const Position *place = positions + here[lane];
            uint32_t feature = feature_at(place);
            double x = row[feature];
            int left = x <= place->threshold;
            if (missing)
                left |= (x != x) & (int)(place->what & MISSING_LEFT);
            int32_t next = next_of(place, left);
            if (partly) {
                next = known[feature] ? next : here[lane];
                moved |= next ^ here[lane];
            }
            here[lane] = next;
        }
        if (partly && !moved)
            break;
    }
    memcpy(at, here, sizeof here);
}

/* What is known of one row. */
typedef struct {
    const double *values;
    const uint8_t *known; /* NULL if all of it is */
    int missing;          /* whether a value may be missing */
} Row;

/* Walk some learners of one row from where they stand, as far as its values are known. */
static void go_on(const Pool *pool, const Row *row, int32_t *at, Py_ssize_t n, int32_t depth, uint32_t kinds)
{
    const Position *positions = pool->positions;
    if (n == LANES && !(kinds & (CATEGORICAL | ZERO_IS_MISSING))) {
        if (row->known && row->missing)
            step_down(positions, row->values, row->known, at, depth, 1, 1);
        else if (row->known)
            step_down(positions, row->values, row->known, at, depth, 0, 1);
        else if (row->missing)
            step_down(positions, row->values, NULL, at, depth, 1, 0);
        else
            step_down(positions, row->values, NULL, at, depth, 0, 0);
        return;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        for (int32_t level = 0; level < depth; level++) {
            const Position *place = positions + at[i];
            if (row->known && !row->known[feature_at(place)])
                break;
            int32_t next = next_of(place, goes_left(pool, at[i], row->values[feature_at(place)]));
            if (next == at[i])
                break;
            at[i] = next;
        }
}

/* Have the upper levels of a learner at hand when its turn comes. */
static inline void fetch_early(const Pool *pool, int32_t root)
{
#if defined(__GNUC__) || defined(__clang__)
    const char *first = (const char *)(pool->positions + root);
    for (int line = 0; line < EARLY_LINES; line++)
        __builtin_prefetch(first + 64 * line);
#else
    (void)pool, (void)root;
#endif
}

/* What the learners of a sum took of the features that are not bought yet, as bits. */
typedef struct {
    uint64_t unknown; /* those that are not, of the ones that the sum may look at */
    uint64_t all;     /* those of them on the way to the leaves that were reached */
    uint64_t alone;   /* those that were the only one on such a way: nothing is needed before them */
} Taken;

/* Note what the features on the ways to some leaves are. */
static void note_taken(const Pool *pool, const int32_t *at, Py_ssize_t n, Taken *taken)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t lacking = pool->paths[at[i]] & taken->unknown;
        taken->all |= lacking;
        taken->alone |= lacking & (lacking - 1) ? 0 : lacking;
    }
}

/* What is noted of the learners that a row evaluates, where it counts. */
typedef struct {
    double *outputs;
    uint8_t *done;
    Taken taken;
} Notes;

/* Add up one sum of one row, all of whose values are known.  With `notes`, what each learner gives is noted, too.  The
 * number of learners that were not done before. */
static Py_ssize_t add_up_one(const Pool *pool, const Sums *sums, Py_ssize_t sum, const Row *row, double *totals,
                             uint64_t *bought, Notes *notes)
{
    Py_ssize_t new = 0;
    int64_t entry = sums->start[sum], end = sums->start[sum + 1];
    while (entry < end) {
        int32_t at[LANES], depth = 0, last = -1;
        uint32_t kinds = 0;
        Py_ssize_t n = 0;
        int64_t stop = entry;
        for (; stop < end; stop++) { /* the next learners; several entries of one stand together */
            int32_t number = sums->learner[stop];
            if (number == last)
                continue;
            if (n == LANES)
                break;
            const Learner *learner = pool->learners + number;
            depth = learner->depth > depth ? learner->depth : depth;
            kinds |= learner->kinds;
            at[n++] = learner->root;
            last = number;
        }
        for (int64_t ahead = stop; ahead < end && ahead < stop + LANES; ahead++)
            fetch_early(pool, pool->learners[sums->learner[ahead]].root);
        go_on(pool, row, at, n, depth, kinds);
        if (bought)
            for (Py_ssize_t i = 0; i < n; i++)
                for (Py_ssize_t word = 0; word < pool->n_words; word++)
                    bought[word] |= pool->bits[at[i] * pool->n_words + word];
        if (notes && notes->taken.alone != notes->taken.unknown) /* otherwise there is nothing more to be noted */
            note_taken(pool, at, n, &notes->taken);
        Py_ssize_t lane = -1;
        double value = 0.0;
        for (last = -1; entry < stop; entry++) {
            if (sums->learner[entry] != last) {
                value = output(pool, at[++lane], row->values);
                last = sums->learner[entry];
                if (notes) {
                    notes->outputs[last] = value;
                    new += !notes->done[last];
                    notes->done[last] = 1;
                }
            }
            totals[sums->column[entry]] += value * sums->weight[entry];
        }
    }
    return new;
}

static int any_missing(const double *values, Py_ssize_t n)
{
    int missing = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        missing |= values[i] != values[i];
    return missing;
}

/* Send one row down the tree; `totals` has room for the outputs of a node. */
static void run_one(const Pool *pool, const Sums *routes, const Sums *predicts, const Shape *shape,
                    const double *values, double *margins, int32_t *terminal, uint64_t *bought, double *totals)
{
    Row there = {values, NULL, any_missing(values, shape->n_features)};
    const Row *row = &there;
    int32_t node = 0, next;
    for (;; node = next) {
        if (shape->upper[node] == shape->lower[node]) {
            next = shape->upper[node];
            break;
        }
        totals[0] = 0.0;
        add_up_one(pool, routes, node, row, totals, bought, NULL);
        next = totals[0] > shape->thresholds[node] ? shape->upper[node] : shape->lower[node];
        if (next < 0)
            break;
    }
    Py_ssize_t k = shape->n_outputs;
    memset(totals, 0, sizeof(double) * k);
    add_up_one(pool, predicts, node, row, totals, bought, NULL);
    for (Py_ssize_t j = 0; j < k; j++)
        margins[j] = totals[j] + shape->intercepts[node * k + j];
    *terminal = -1 - next;
}

/* -- a tree as Python holds it ------------------------------------------------------------------------------------ */

enum {
    POSITIONS,
    LEARNERS,
    CATEGORY_START,
    CATEGORY_COUNT,
    CATEGORY_LEFT,
    ROUTE_START,
    ROUTE_LEARNER,
    ROUTE_COLUMN,
    ROUTE_WEIGHT,
    PREDICT_START,
    PREDICT_LEARNER,
    PREDICT_COLUMN,
    PREDICT_WEIGHT,
    UPPER,
    LOWER,
    THRESHOLDS,
    INTERCEPTS,
    N_BUFFERS
};

static const Py_ssize_t SIZES[N_BUFFERS] = {
    sizeof(Position), sizeof(Learner), 4, 4, 1, 8, 4, 4, 8, 8, 4, 4, 8, 4, 4, 8, 8};

enum { GATE, BOUGHT, CAME_ALONG, N_WORDS };
static const char *const WORDS[N_WORDS] = {"gate", "bought", "came along"};

typedef struct {
    PyObject_HEAD
    Pool pool;
    Sums routes, predicts;
    Shape shape;
    Py_ssize_t n_positions, n_learners, n_features;
    Py_buffer buffers[N_BUFFERS]; /* all that the above points to */
    int n_buffers;
    uint8_t *uses; /* for each node, the features that its gate may look at, then those that its prediction may */
    uint64_t *paths;         /* as in the pool, which borrows them */
    int32_t feature_of[64];  /* the feature of each bit of a path, in growing order */
    int n_bits;
    PyObject *words[N_WORDS]; /* what events are called */
} Tree;

typedef struct {
    PyObject *walk_type;
} State;

static void tree_dealloc(PyObject *object)
{
    Tree *self = (Tree *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < self->n_buffers; i++)
        PyBuffer_Release(self->buffers + i);
    PyMem_Free(self->uses);
    PyMem_Free(self->paths);
    for (int i = 0; i < N_WORDS; i++)
        Py_XDECREF(self->words[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static uintptr_t alignment_of(Py_ssize_t size)
{
    return size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : 1;
}

static int all_within(const int32_t *numbers, Py_ssize_t n, Py_ssize_t first, Py_ssize_t end)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (numbers[i] < first || numbers[i] >= end)
            return 0;
    return 1;
}

/* Whether the entries of some sums are there, and name learners and columns that exist. */
static int sums_fit(const Sums *sums, const Py_ssize_t *n, Py_ssize_t n_sums, Py_ssize_t n_learners,
                    Py_ssize_t n_columns)
{
    if (n[0] != n_sums + 1 || n[1] != n[2] || n[1] != n[3] || sums->start[0] != 0 || sums->start[n_sums] != n[1])
        return 0;
    for (Py_ssize_t i = 0; i < n_sums; i++)
        if (sums->start[i] > sums->start[i + 1])
            return 0;
    return all_within(sums->learner, n[1], 0, n_learners) && all_within(sums->column, n[1], 0, n_columns);
}

static int tree_fits(const Tree *self, const Py_ssize_t *n)
{
    Py_ssize_t n_nodes = n[UPPER], n_outputs = self->shape.n_outputs;
    if (n_nodes < 1 || n[LOWER] != n_nodes || n[THRESHOLDS] != n_nodes || n_outputs < 1 || self->n_features < 0 ||
        n[INTERCEPTS] != n_nodes * n_outputs || n[CATEGORY_START] != n[POSITIONS] ||
        n[CATEGORY_COUNT] != n[POSITIONS])
        return 0;
    for (Py_ssize_t node = 0; node < n_nodes; node++) /* a child comes after its parent, so that every walk ends */
        if ((self->shape.upper[node] >= 0 && self->shape.upper[node] <= node) ||
            (self->shape.lower[node] >= 0 && self->shape.lower[node] <= node) ||
            (self->shape.upper[node] >= 0 && self->shape.upper[node] == self->shape.lower[node]))
            return 0;
    return all_within(self->shape.upper, n_nodes, INT32_MIN, n_nodes) &&
           all_within(self->shape.lower, n_nodes, INT32_MIN, n_nodes) &&
           sums_fit(&self->routes, n + ROUTE_START, n_nodes, n[LEARNERS], 1) &&
           sums_fit(&self->predicts, n + PREDICT_START, n_nodes, n[LEARNERS], n_outputs);
}

/* Where the positions of a learner end: where those of the next one begin. */
static Py_ssize_t end_of(const Tree *self, Py_ssize_t number)
{
    return number + 1 < self->n_learners ? self->pool.learners[number + 1].root : self->n_positions;
}

/* Note the features that the learners of one sum may look at. */
static void note_uses(const Tree *self, const Sums *sums, Py_ssize_t sum, uint8_t *uses)
{
    const Position *positions = self->pool.positions;
    for (int64_t entry = sums->start[sum]; entry < sums->start[sum + 1]; entry++) {
        Py_ssize_t number = sums->learner[entry];
        for (Py_ssize_t at = self->pool.learners[number].root; at < end_of(self, number); at++)
            if (positions[at].what & (INNER | LINEAR))
                uses[feature_at(positions + at)] = 1;
    }
}

/* Give a bit to each feature that a learner looks at; false if they are too many. */
static int name_bits(Tree *self, uint8_t *bit_of)
{
    const Position *positions = self->pool.positions;
    memset(bit_of, 0, (size_t)self->n_features);
    for (Py_ssize_t at = 0; at < self->n_positions; at++)
        if (positions[at].what & (INNER | LINEAR))
            bit_of[feature_at(positions + at)] = 1;
    self->n_bits = 0;
    for (Py_ssize_t feature = 0; feature < self->n_features; feature++) {
        if (!bit_of[feature])
            continue;
        if (self->n_bits == 64)
            return 0;
        bit_of[feature] = (uint8_t)self->n_bits;
        self->feature_of[self->n_bits++] = (int32_t)feature;
    }
    return 1;
}

/* The features on the way to each position; parents stand before their children.  -1 if there is no memory. */
static int note_paths(Tree *self)
{
    const Position *positions = self->pool.positions;
    uint8_t *bit_of = PyMem_Malloc((size_t)self->n_features + 1);
    int failed = !bit_of;
    if (bit_of && name_bits(self, bit_of)) {
        self->paths = PyMem_Calloc((size_t)self->n_positions + 1, sizeof(uint64_t));
        failed = !self->paths;
    }
    for (Py_ssize_t at = 0; self->paths && at < self->n_positions; at++) {
        const Position *here = positions + at;
        if (!(here->what & (INNER | LINEAR)))
            continue;
        uint64_t here_too = self->paths[at] | (uint64_t)1 << bit_of[feature_at(here)];
        if (here->what & INNER)
            self->paths[here->child] = self->paths[here->child + 1] = here_too;
        else
            self->paths[at] = here_too;
    }
    PyMem_Free(bit_of);
    self->pool.paths = self->paths;
    return failed ? -1 : 0;
}

/* Tree(arrays, n_features, n_outputs): the arrays in the order above. */
static PyObject *tree_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *arrays;
    Py_ssize_t n_features, n_outputs, n[N_BUFFERS];
    if (!PyArg_ParseTuple(args, "O!nn", &PyTuple_Type, &arrays, &n_features, &n_outputs))
        return NULL;
    if (PyTuple_Size(arrays) != N_BUFFERS) {
        PyErr_SetString(PyExc_ValueError, "a tree has another number of arrays");
        return NULL;
    }
    Tree *self = (Tree *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    for (int i = 0; i < N_WORDS; i++)
        if (!(self->words[i] = PyUnicode_InternFromString(WORDS[i])))
            goto failed;
    for (int i = 0; i < N_BUFFERS; i++) {
        Py_buffer *buffer = self->buffers + i;
        if (PyObject_GetBuffer(PyTuple_GetItem(arrays, i), buffer, PyBUF_SIMPLE) < 0)
            goto failed;
        self->n_buffers = i + 1;
        n[i] = buffer->len / SIZES[i];
        if (buffer->len % SIZES[i] || (uintptr_t)buffer->buf % alignment_of(SIZES[i])) {
            PyErr_SetString(PyExc_ValueError, "an array of a tree has the wrong size");
            goto failed;
        }
    }
#define AT(name) self->buffers[name].buf
    self->pool = (Pool){AT(POSITIONS),      AT(LEARNERS), AT(CATEGORY_START), AT(CATEGORY_COUNT),
                        AT(CATEGORY_LEFT), NULL,         NULL,               NULL,
                        0,                 NULL};
    self->routes = (Sums){AT(ROUTE_START), AT(ROUTE_LEARNER), AT(ROUTE_COLUMN), AT(ROUTE_WEIGHT)};
    self->predicts = (Sums){AT(PREDICT_START), AT(PREDICT_LEARNER), AT(PREDICT_COLUMN), AT(PREDICT_WEIGHT)};
    self->shape = (Shape){n[UPPER], n_outputs, n_features, AT(UPPER), AT(LOWER), AT(THRESHOLDS), AT(INTERCEPTS)};
#undef AT
    self->n_positions = n[POSITIONS];
    self->n_learners = n[LEARNERS];
    self->n_features = n_features;
    if (!tree_fits(self, n)) {
        PyErr_SetString(PyExc_ValueError, "the arrays of a tree do not fit together");
        goto failed;
    }
    self->uses = PyMem_Calloc((size_t)n[UPPER] * 2, (size_t)n_features + 1);
    if (!self->uses || note_paths(self) < 0) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t node = 0; node < n[UPPER]; node++) {
        note_uses(self, &self->routes, node, self->uses + 2 * node * n_features);
        note_uses(self, &self->predicts, node, self->uses + (2 * node + 1) * n_features);
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

/* For each learner all items that it can buy, and room for one further set of items; NULL if there is no memory. */
static uint64_t *most_of(const Tree *self, const uint64_t *bits, Py_ssize_t n_words)
{
    uint64_t *most = PyMem_Calloc(((size_t)self->n_learners + 1) * (size_t)n_words + 1, sizeof(uint64_t));
    for (Py_ssize_t number = 0; most && number < self->n_learners; number++)
        for (Py_ssize_t at = self->pool.learners[number].root; at < end_of(self, number); at++)
            for (Py_ssize_t word = 0; word < n_words; word++)
                most[number * n_words + word] |= bits[at * n_words + word];
    return most;
}

/* run(X, margins, terminals, bits, bought): rows as float64; `bits` and `bought` may be None. */
static PyObject *tree_run(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    Tree *self = (Tree *)object;
    if (n_args != 5) {
        PyErr_SetString(PyExc_TypeError, "run takes five arguments");
        return NULL;
    }
    Py_buffer found[5];
    int n_found = 0, with_items = args[3] != Py_None && args[4] != Py_None;
    double *totals = NULL;
    int32_t *begins = NULL;
    uint64_t *most = NULL;
    PyObject *result = NULL;
    for (int i = 0; i < (with_items ? 5 : 3); i++, n_found++)
        if (PyObject_GetBuffer(args[i], found + i, i == 0 || i == 3 ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0)
            goto done;
    Py_ssize_t k = self->shape.n_outputs, n = found[2].len / (Py_ssize_t)sizeof(int32_t);
    Pool pool = self->pool;
    if (with_items) {
        pool.bits = found[3].buf;
        pool.n_words = n ? found[4].len / 8 / n : 0;
    }
    for (int i = 0; i < n_found; i++)
        if ((uintptr_t)found[i].buf % (i == 2 ? 4 : 8)) {
            PyErr_SetString(PyExc_ValueError, "an array of rows is not aligned");
            goto done;
        }
    if (found[0].len != n * self->n_features * (Py_ssize_t)sizeof(double) ||
        found[1].len != n * k * (Py_ssize_t)sizeof(double) || found[2].len != n * (Py_ssize_t)sizeof(int32_t) ||
        (with_items && n && (found[3].len != self->n_positions * pool.n_words * 8 ||
                        found[4].len != n * pool.n_words * 8))) {
        PyErr_SetString(PyExc_ValueError, "an array of rows has the wrong size");
        goto done;
    }
    const double *X = found[0].buf;
    double *margins = found[1].buf;
    int32_t *terminals = found[2].buf;
    uint64_t *bought = with_items ? found[4].buf : NULL;
    Py_ssize_t n_nodes = self->shape.n_nodes;
    totals = PyMem_Malloc(sizeof(double) * (n <= FEW_ROWS ? 1 : BLOCK) * k);
    begins = PyMem_Malloc(sizeof(int32_t) * 2 * n_nodes);
    if (with_items && n >= MANY_ROWS) {
        most = most_of(self, pool.bits, pool.n_words);
        pool.most = most;
        pool.common = most ? most + self->n_learners * pool.n_words : NULL;
    }
    if (!totals || !begins || (with_items && n >= MANY_ROWS && !most)) {
        PyErr_NoMemory();
        goto done;
    }
    PyThreadState *thread = n < KEEP_LOCK ? NULL : PyEval_SaveThread();
    if (n <= FEW_ROWS)
        for (Py_ssize_t i = 0; i < n; i++)
            run_one(&pool, &self->routes, &self->predicts, &self->shape, X + i * self->n_features, margins + i * k,
                    terminals + i, bought ? bought + i * pool.n_words : NULL, totals);
    else
        for (Py_ssize_t start = 0; start < n; start += BLOCK) {
            Py_ssize_t size = n - start < BLOCK ? n - start : BLOCK;
            run_block(&pool, &self->routes, &self->predicts, &self->shape, X + start * self->n_features,
                      self->n_features, size, margins + start * k, terminals + start,
                      bought ? bought + start * pool.n_words : NULL, totals, begins, begins + n_nodes);
        }
    if (thread)
        PyEval_RestoreThread(thread);
    result = Py_NewRef(Py_None);
done:
    PyMem_Free(totals);
    PyMem_Free(begins);
    PyMem_Free(most);
    for (int i = 0; i < n_found; i++)
        PyBuffer_Release(found + i);
    return result;
}

/* -- one row whose values are still coming in ---------------------------------------------------------------------- */

/* What a node adds up: as Python packs it. */
typedef struct {
    double weight;
    int32_t learner;
    int32_t column;
} Entry;

typedef struct {
    PyObject_HEAD
    Tree *tree;
    Py_ssize_t pending;   /* learners of the current step that are not evaluated yet */
    Py_ssize_t evaluated; /* learners that were taken up; for `go`, as the next three */
    Py_ssize_t node;      /* -1 before the root */
    Py_ssize_t terminal;  /* -1 as long as it is not known */
    int leaving;          /* whether the learners are those of the node's prediction */
    Py_ssize_t capacity;
    int32_t depth; /* of the deepest learner of the current step */
    uint32_t kinds;
    int missing;         /* whether a value that is known is missing */
    const uint8_t *uses; /* features that the pending learners may look at; NULL: any */
    int added;           /* whether the sum of the current step is in `totals` already */
    double *totals;      /* by output */
    double *values;   /* by feature; zero where it is not known */
    double *outputs;  /* by learner, where it is done */
    int32_t *learner; /* those that are pending ... */
    int32_t *at;      /* ... and the positions where they wait */
    uint8_t *known;   /* by feature */
    uint8_t *needed;  /* by feature; all zero between two calls */
    uint8_t *offered; /* by feature: not known, but its value came along and is in `values` */
    int offers;       /* whether there are any */
    Taken taken;      /* what the current step took of them, until that is bought */
    uint8_t *done;    /* by learner */
} Walk;

static void walk_dealloc(PyObject *object)
{
    Walk *self = (Walk *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(self->totals);
    PyMem_Free(self->outputs);
    PyMem_Free(self->learner);
    Py_XDECREF((PyObject *)self->tree);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* start(): a walk of a row of which nothing is known. */
static PyObject *tree_start(PyObject *object, PyObject *Py_UNUSED(none))
{
    Tree *tree = (Tree *)object;
    State *state = PyType_GetModuleState(Py_TYPE(object));
    PyTypeObject *type = (PyTypeObject *)state->walk_type;
    Walk *self = (Walk *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->tree = (Tree *)Py_NewRef(object);
    self->node = self->terminal = -1;
    size_t n_features = (size_t)tree->n_features + 1, n_learners = (size_t)tree->n_learners + 1;
    size_t n_outputs = (size_t)tree->shape.n_outputs;
    self->totals = PyMem_Calloc(n_outputs * sizeof(double) + n_features * (sizeof(double) + 3), 1);
    self->outputs = PyMem_Malloc(n_learners * (sizeof(double) + 1));
    if (!self->totals || !self->outputs) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->values = self->totals + n_outputs;
    self->known = (uint8_t *)(self->values + n_features);
    self->needed = self->known + n_features;
    self->offered = self->needed + n_features;
    self->done = (uint8_t *)(self->outputs + n_learners);
    memset(self->done, 0, n_learners);
    return (PyObject *)self;
}

/* A feature's number from Python; -1 with an error if there is no such feature. */
static Py_ssize_t feature_of(const Walk *self, PyObject *number)
{
    Py_ssize_t feature = PyLong_AsSsize_t(number);
    if (feature == -1 && PyErr_Occurred())
        return -1;
    if (feature < 0 || feature >= self->tree->n_features) {
        PyErr_SetString(PyExc_ValueError, "there is no such feature");
        return -1;
    }
    return feature;
}

static void know(Walk *self, Py_ssize_t feature, double value)
{
    self->values[feature] = value;
    self->missing |= value != value;
    self->known[feature] = 1;
    self->offered[feature] = 0;
}

/* fill(feature, value) */
static PyObject *walk_fill(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    Walk *self = (Walk *)object;
    if (n_args != 2) {
        PyErr_SetString(PyExc_TypeError, "fill takes a feature and its value");
        return NULL;
    }
    Py_ssize_t feature = feature_of(self, args[0]);
    if (feature < 0)
        return NULL;
    double value = PyFloat_AsDouble(args[1]);
    if (value == -1.0 && PyErr_Occurred())
        return NULL;
    know(self, feature, value);
    Py_RETURN_NONE;
}

/* Whether a value can be used as it is: a finite float, or one that may be missing; `kind` as in `fill_floats`. */
static int is_usable(PyObject *raw, char kind)
{
    if (!PyFloat_CheckExact(raw) || !kind)
        return 0;
    double value = PyFloat_AsDouble(raw);
    return value - value == 0.0 || (value != value && kind == 2);
}

/* Kinds of the features, as `fill_floats` takes them; NULL with an error if they are of another tree. */
static const char *kinds_of(const Walk *self, PyObject *bytes)
{
    char *kinds;
    Py_ssize_t n_kinds;
    if (PyBytes_AsStringAndSize(bytes, &kinds, &n_kinds) < 0)
        return NULL;
    if (n_kinds != self->tree->n_features) {
        PyErr_SetString(PyExc_ValueError, "kinds of another number of features");
        return NULL;
    }
    return kinds;
}

/* fill_floats(features, raw, known, kinds, move): the values of some features, if they are all floats that need no
 * encoding; then true, and they are in `known`, too, and if they are to be moved, no longer in `raw`.  `kinds`
 * says for each feature: 0, never; 1, a number; 2, a number that may be missing. */
static PyObject *walk_fill_floats(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    Walk *self = (Walk *)object;
    if (n_args != 5 || !PyTuple_Check(args[0]) || !PyDict_Check(args[1]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "fill_floats takes features, their values, what is known, and kinds");
        return NULL;
    }
    const char *kinds = kinds_of(self, args[3]);
    if (!kinds)
        return NULL;
    Py_ssize_t n = PyTuple_Size(args[0]);
    int move = args[4] == Py_True;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t feature = feature_of(self, PyTuple_GetItem(args[0], i));
        if (feature < 0)
            return NULL;
        PyObject *raw = PyDict_GetItemWithError(args[1], PyTuple_GetItem(args[0], i));
        if (!raw && PyErr_Occurred())
            return NULL;
        if (!raw || !is_usable(raw, kinds[feature]))
            Py_RETURN_FALSE;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *number = PyTuple_GetItem(args[0], i), *raw = PyDict_GetItemWithError(args[1], number);
        if (!raw) { /* the same feature twice */
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a feature is named twice");
            return NULL;
        }
        know(self, PyLong_AsSsize_t(number), PyFloat_AsDouble(raw));
        if (PyDict_SetItem(args[2], number, raw) < 0 || (move && PyDict_DelItem(args[1], number) < 0))
            return NULL;
    }
    Py_RETURN_TRUE;
}

/* The numbers of learners in a step; NULL with an error if one does not exist. */
static const int32_t *learners_of(const Walk *self, PyObject *step, Py_ssize_t *n)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(step, &bytes, &size) < 0)
        return NULL;
    *n = size / (Py_ssize_t)sizeof(int32_t);
    if (size % (Py_ssize_t)sizeof(int32_t) || !all_within((int32_t *)bytes, *n, 0, self->tree->n_learners)) {
        PyErr_SetString(PyExc_ValueError, "a step names learners that do not exist");
        return NULL;
    }
    return (int32_t *)bytes;
}

/* Make room for so many pending learners; -1 with an error if there is none. */
static int begin_step(Walk *self, Py_ssize_t n)
{
    self->pending = 0;
    self->depth = 0;
    self->kinds = 0;
    self->uses = NULL;
    self->added = 0;
    if (n <= self->capacity)
        return 0;
    PyMem_Free(self->learner);
    self->capacity = 0;
    self->learner = PyMem_Malloc((size_t)n * 2 * sizeof(int32_t));
    if (!self->learner) {
        PyErr_NoMemory();
        return -1;
    }
    self->capacity = n;
    self->at = self->learner + n;
    return 0;
}

static inline void take_up(Walk *self, int32_t number)
{
    const Learner *learner = self->tree->pool.learners + number;
    self->learner[self->pending] = number;
    self->at[self->pending++] = learner->root;
    self->depth = learner->depth > self->depth ? learner->depth : self->depth;
    self->kinds |= learner->kinds;
}

/* begin(step) */
static PyObject *walk_begin(PyObject *object, PyObject *step)
{
    Walk *self = (Walk *)object;
    Py_ssize_t n;
    const int32_t *learners = learners_of(self, step, &n);
    if (!learners || begin_step(self, n) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        take_up(self, learners[i]);
    Py_RETURN_NONE;
}

/* The row as the pending learners see it: nothing must be asked for if all that they may look at is known. */
static Row row_of(const Walk *self)
{
    int unknown = 0;
    for (Py_ssize_t feature = 0; feature < self->tree->n_features; feature++)
        unknown |= (!self->known[feature]) & (self->uses ? self->uses[feature] : 1);
    return (Row){self->values, unknown ? self->known : NULL, self->missing};
}

/* The feature that a learner waits for at a position; -1 if it is evaluated there, and its output. */
static int32_t waits_for(const Walk *self, int32_t at, double *value)
{
    const Position *here = self->tree->pool.positions + at;
    if (!(here->what & INNER) && (!(here->what & LINEAR) || self->known[feature_at(here)])) {
        *value = output(&self->tree->pool, at, self->values);
        return -1;
    }
    return (int32_t)feature_at(here);
}

/* Evaluate the pending learners as far as the known features allow; the missing features, in growing order. */
static PyObject *advance(Walk *self)
{
    const Pool *pool = &self->tree->pool;
    const Row row = row_of(self);
    Py_ssize_t n = self->pending, waiting = 0, n_needed = 0;
    for (Py_ssize_t start = 0; start < n; start += LANES) {
        Py_ssize_t size = n - start < LANES ? n - start : LANES;
        for (Py_ssize_t ahead = start + LANES; ahead < n && ahead < start + 2 * LANES; ahead++)
            fetch_early(pool, self->at[ahead]);
        go_on(pool, &row, self->at + start, size, self->depth, self->kinds);
        for (Py_ssize_t i = start; i < start + size; i++) {
            int32_t number = self->learner[i], at = self->at[i];
            int32_t feature = waits_for(self, at, self->outputs + number);
            if (feature < 0) {
                self->done[number] = 1;
                continue;
            }
            self->learner[waiting] = number;
            self->at[waiting++] = at;
            n_needed += !self->needed[feature];
            self->needed[feature] = 1;
        }
    }
    self->pending = waiting;
    PyObject *features = PyTuple_New(n_needed);
    Py_ssize_t place = 0;
    for (Py_ssize_t feature = 0; place < n_needed && feature < self->tree->n_features; feature++) {
        if (!self->needed[feature])
            continue;
        self->needed[feature] = 0;
        PyObject *number = features ? PyLong_FromSsize_t(feature) : NULL;
        if (number)
            PyTuple_SetItem(features, place, number);
        else if (features) {
            Py_DECREF(features);
            features = NULL;
        }
        place++;
    }
    return features;
}

/* A list of weighted sums over learners that are done, in the order of the learners. */
static PyObject *add_up_entries(const Walk *self, PyObject *weights)
{
    char *bytes;
    Py_ssize_t size, n_columns = PyLong_AsSsize_t(PyTuple_GetItem(weights, 1));
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(weights, 0), &bytes, &size) < 0)
        return NULL;
    double few[4] = {0.0}, *totals = few;
    if (n_columns < 0 || size % (Py_ssize_t)sizeof(Entry)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "weights have the wrong size");
        return NULL;
    }
    if (n_columns > 4 && !(totals = PyMem_Calloc((size_t)n_columns, sizeof(double))))
        return PyErr_NoMemory();
    const Entry *entries = (const Entry *)bytes;
    PyObject *sums = NULL;
    for (Py_ssize_t i = 0; i < size / (Py_ssize_t)sizeof(Entry); i++) {
        const Entry *entry = entries + i;
        if (entry->learner < 0 || entry->learner >= self->tree->n_learners || !self->done[entry->learner] ||
            entry->column < 0 || entry->column >= n_columns) {
            PyErr_SetString(PyExc_ValueError, "weights of learners that are not evaluated");
            goto end;
        }
        totals[entry->column] += self->outputs[entry->learner] * entry->weight;
    }
    sums = PyList_New(n_columns);
    for (Py_ssize_t column = 0; sums && column < n_columns; column++) {
        PyObject *sum = PyFloat_FromDouble(totals[column]);
        if (sum)
            PyList_SetItem(sums, column, sum);
        else {
            Py_DECREF(sums);
            sums = NULL;
        }
    }
end:
    if (totals != few)
        PyMem_Free(totals);
    return sums;
}

/* advance() */
static PyObject *walk_advance(PyObject *object, PyObject *Py_UNUSED(none))
{
    return advance((Walk *)object);
}

/* Whether all that the current step may look at is known or came along. */
static int all_at_hand(const Walk *self)
{
    int lacking = 0;
    for (Py_ssize_t feature = 0; feature < self->tree->n_features; feature++)
        lacking |= self->uses[feature] & !(self->known[feature] | self->offered[feature]);
    return !lacking;
}

/* The features that are not known and that the current step may look at, as bits of paths. */
static uint64_t unknown_bits(const Walk *self)
{
    uint64_t unknown = 0;
    for (int bit = 0; bit < self->tree->n_bits; bit++) {
        int32_t feature = self->tree->feature_of[bit];
        unknown |= (uint64_t)(self->uses[feature] & !self->known[feature]) << bit;
    }
    return unknown;
}

/* Take up the learners of one of the tree's sums that are not evaluated yet. */
static int begin_sum(Walk *self, const Sums *sums, Py_ssize_t sum, int leaving)
{
    int64_t first = sums->start[sum], end = sums->start[sum + 1];
    if (begin_step(self, (Py_ssize_t)(end - first)) < 0)
        return -1;
    self->leaving = leaving;
    self->uses = self->tree->uses + (2 * sum + leaving) * self->tree->n_features;
    Row row = row_of(self);
    if (row.known && self->offers && all_at_hand(self))
        row.known = NULL;
    if (!row.known) { /* nothing has to wait, so the learners need not be taken up one by one */
        Notes notes = {self->outputs, self->done, {self->offers ? unknown_bits(self) : 0, 0, 0}};
        memset(self->totals, 0, sizeof(double) * (size_t)self->tree->shape.n_outputs);
        self->evaluated += add_up_one(&self->tree->pool, sums, sum, &row, self->totals, NULL, &notes);
        self->added = 1;
        self->taken = notes.taken;
        return 0;
    }
    for (int64_t entry = first; entry < end; entry++) {
        int32_t number = sums->learner[entry];
        if (!self->done[number] && (entry == first || sums->learner[entry - 1] != number))
            take_up(self, number);
    }
    self->evaluated += self->pending;
    return 0;
}

/* Go to a node: the learners of its gate, or of its prediction if it is a leaf classifier. */
static int enter(Walk *self, int32_t node)
{
    const Tree *tree = self->tree;
    self->node = node;
    int leaf = tree->shape.upper[node] == tree->shape.lower[node];
    if (leaf)
        self->terminal = -1 - (Py_ssize_t)tree->shape.upper[node];
    return begin_sum(self, leaf ? &tree->predicts : &tree->routes, node, leaf);
}

/* Add up the sum of the current step, all of whose learners are evaluated. */
static void add_up_done(Walk *self, const Sums *sums)
{
    if (self->added)
        return;
    memset(self->totals, 0, sizeof(double) * (size_t)self->tree->shape.n_outputs);
    for (int64_t entry = sums->start[self->node]; entry < sums->start[self->node + 1]; entry++)
        self->totals[sums->column[entry]] += self->outputs[sums->learner[entry]] * sums->weight[entry];
    self->added = 1;
}

/* Choose the way at a node whose gate is evaluated; the event is noted. */
static int pass_gate(Walk *self, PyObject *events, PyObject *path)
{
    const Tree *tree = self->tree;
    add_up_done(self, &tree->routes);
    double margin = self->totals[0], threshold = tree->shape.thresholds[self->node];
    int32_t child = margin > threshold ? tree->shape.upper[self->node] : tree->shape.lower[self->node];
    PyObject *event = Py_BuildValue("Onddi", tree->words[GATE], self->node, margin, threshold, (int)child);
    int failed = !event || PyList_Append(events, event) < 0;
    Py_XDECREF(event);
    if (failed)
        return -1;
    if (child >= 0) {
        PyObject *number = PyLong_FromLong(child);
        failed = !number || PyList_Append(path, number) < 0;
        Py_XDECREF(number);
        return failed ? -1 : enter(self, child);
    }
    self->terminal = -1 - (Py_ssize_t)child;
    return begin_sum(self, &tree->predicts, self->node, 1);
}

/* The margins of the node, as a list. */
static PyObject *margins_of(Walk *self)
{
    const Shape *shape = &self->tree->shape;
    Py_ssize_t k = shape->n_outputs;
    PyObject *margins = PyList_New(k);
    add_up_done(self, &self->tree->predicts);
    for (Py_ssize_t j = 0; margins && j < k; j++) {
        PyObject *margin = PyFloat_FromDouble(self->totals[j] + shape->intercepts[self->node * k + j]);
        if (margin)
            PyList_SetItem(margins, j, margin);
        else
            Py_CLEAR(margins);
    }
    return margins;
}

/* The features that the learners of the current step ask for first, of those that are not known, as bits. */
static uint64_t first_unknown(const Walk *self)
{
    const Pool *pool = &self->tree->pool;
    const Sums *sums = self->leaving ? &self->tree->predicts : &self->tree->routes;
    const Row row = {self->values, self->known, self->missing};
    uint64_t before = 0, unknown = unknown_bits(self);
    for (int64_t entry = sums->start[self->node]; entry < sums->start[self->node + 1]; entry++) {
        const Learner *learner = pool->learners + sums->learner[entry];
        int32_t at = learner->root;
        go_on(pool, &row, &at, 1, learner->depth, learner->kinds);
        const Position *here = pool->positions + at;
        for (int bit = 0; here->what & (INNER | LINEAR) && bit < self->tree->n_bits; bit++)
            if (self->tree->feature_of[bit] == (int32_t)feature_at(here))
                before |= (uint64_t)1 << bit & unknown;
    }
    return before;
}

/* What `go` is given beside the lists of events and nodes, if values came along. */
typedef struct {
    PyObject *known, *held; /* values by feature: bought, and those that came along */
    PyObject *charges;      /* for each feature, the items that it buys */
    PyObject *bill;         /* a list: the number of waves, the items that are paid, those that were bought */
} Purse;

/* Move the value of a feature from what came along to what is known, and add its items; -1 with an error. */
static int buy_feature(Walk *self, const Purse *purse, PyObject *number, PyObject **items)
{
    Py_ssize_t feature = PyLong_AsSsize_t(number);
    PyObject *raw = PyDict_GetItemWithError(purse->held, number);
    if (!raw) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a value that came along is gone");
        return -1;
    }
    PyObject *together = PyNumber_Or(*items, PyList_GetItem(purse->charges, feature));
    if (!together)
        return -1;
    Py_DECREF(*items);
    *items = together;
    know(self, feature, self->values[feature]);
    return PyDict_SetItem(purse->known, number, raw) < 0 || PyDict_DelItem(purse->held, number) < 0 ? -1 : 0;
}

/* Put a set of items on the bill: those of them that were not paid before. */
static PyObject *charge(const Purse *purse, PyObject *items)
{
    PyObject *paid = PyList_GetItem(purse->bill, 1), *bought = PyList_GetItem(purse->bill, 2);
    PyObject *all = PyNumber_Or(paid, items), *new = all ? PyNumber_Xor(all, paid) : NULL;
    PyObject *both = new ? PyNumber_Or(bought, new) : NULL;
    if (!both) {
        Py_XDECREF(all);
        Py_XDECREF(new);
        return NULL;
    }
    PyList_SetItem(purse->bill, 1, all);
    PyList_SetItem(purse->bill, 2, both);
    return new;
}

/* Buy one wave of values that came along; the event is noted. */
static int buy_wave(Walk *self, const Purse *purse, uint64_t wave, PyObject *events)
{
    Py_ssize_t size = 0, number = PyLong_AsSsize_t(PyList_GetItem(purse->bill, 0)) + 1;
    for (uint64_t left = wave; left; left &= left - 1)
        size++;
    PyObject *features = PyTuple_New(size), *items = PyLong_FromLong(0), *new = NULL, *event = NULL, *count;
    int failed = !features || !items;
    Py_ssize_t place = 0;
    for (int bit = 0; !failed && bit < self->tree->n_bits; bit++) {
        if (!(wave >> bit & 1))
            continue;
        PyObject *feature = PyLong_FromLong(self->tree->feature_of[bit]);
        failed = !feature || PyTuple_SetItem(features, place++, feature) < 0 ||
                 buy_feature(self, purse, feature, &items) < 0;
    }
    if (!failed && (new = charge(purse, items)))
        event = Py_BuildValue("OnnOOOOO", self->tree->words[BOUGHT], self->node, number, features, new, Py_None,
                              Py_None, self->tree->words[CAME_ALONG]);
    count = event ? PyLong_FromSsize_t(number) : NULL;
    failed = !count || PyList_SetItem(purse->bill, 0, count) < 0 || PyList_Append(events, event) < 0;
    Py_XDECREF(features);
    Py_XDECREF(items);
    Py_XDECREF(new);
    Py_XDECREF(event);
    return failed ? -1 : 0;
}

/* Buy what the current step took of the values that came along: wave by wave, as if each had been asked for. */
static int buy_taken(Walk *self, const Purse *purse, PyObject *events)
{
    uint64_t left = self->taken.all, wave = self->taken.alone;
    self->taken = (Taken){0, 0, 0};
    for (; left; left &= ~wave) {
        if (wave != left) /* some are needed only after others */
            wave = first_unknown(self) & left;
        if (!wave) {
            PyErr_SetString(PyExc_RuntimeError, "what a step took is not on its ways");
            return -1;
        }
        if (buy_wave(self, purse, wave, events) < 0)
            return -1;
    }
    return 0;
}

/* Have the values that came along at hand, as far as they can be used as they are. */
static int take_offers(Walk *self, PyObject *held, const char *kinds)
{
    PyObject *number, *raw;
    Py_ssize_t at = 0;
    memset(self->offered, 0, (size_t)self->tree->n_features);
    self->offers = 0;
    while (self->tree->paths && PyDict_Next(held, &at, &number, &raw)) {
        Py_ssize_t feature = feature_of(self, number);
        if (feature < 0)
            return -1;
        if (self->known[feature] || !is_usable(raw, kinds[feature]))
            continue;
        self->values[feature] = PyFloat_AsDouble(raw);
        self->missing |= self->values[feature] != self->values[feature];
        self->offered[feature] = 1;
        self->offers = 1;
    }
    return 0;
}

/* Down the tree as far as what is known, or came along and may be bought, allows. */
static PyObject *go_down(Walk *self, PyObject *events, PyObject *path, const Purse *purse)
{
    if (self->node < 0 && enter(self, 0) < 0)
        return NULL;
    for (;;) {
        if (self->pending) {
            PyObject *missing = advance(self);
            if (!missing || PyTuple_Size(missing) > 0)
                return missing;
            Py_DECREF(missing);
        }
        if (purse && self->taken.all && buy_taken(self, purse, events) < 0)
            return NULL;
        if (self->leaving)
            return margins_of(self);
        if (pass_gate(self, events, path) < 0)
            return NULL;
    }
}

/* go(events, path): down the tree as far as the known features allow.  A tuple of the features that are missing, or, at
 * the end, a list of the margins.  Gates that were passed, and the nodes below the root, are appended to the lists. */
static PyObject *walk_go(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    Walk *self = (Walk *)object;
    if (n_args != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "go takes a list of events and a list of nodes");
        return NULL;
    }
    self->offers = 0;
    return go_down(self, args[0], args[1], NULL);
}

/* go_buying(events, path, known, held, kinds, charges, bill): the same, and on the way values that came along are
 * bought when they are needed: they move from `held` to `known`, their items go on the bill, and it is an event.  Where
 * a step may look at more than is at hand, it waits as in `go`. */
static PyObject *walk_go_buying(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    Walk *self = (Walk *)object;
    if (n_args != 7 || !PyList_Check(args[0]) || !PyList_Check(args[1]) || !PyDict_Check(args[2]) ||
        !PyDict_Check(args[3]) || !PyList_Check(args[5]) || PyList_Size(args[5]) != self->tree->n_features ||
        !PyList_Check(args[6]) || PyList_Size(args[6]) != 3) {
        PyErr_SetString(PyExc_TypeError, "go_buying takes lists, values, kinds, charges and a bill");
        return NULL;
    }
    const char *kinds = kinds_of(self, args[4]);
    if (!kinds || take_offers(self, args[3], kinds) < 0)
        return NULL;
    const Purse purse = {args[2], args[3], args[5], args[6]};
    PyObject *found = go_down(self, args[0], args[1], &purse);
    self->offers = 0;
    return found;
}

static int are_weights(PyObject *weights)
{
    if (PyTuple_Check(weights) && PyTuple_Size(weights) == 2)
        return 1;
    PyErr_SetString(PyExc_TypeError, "weights are bytes and a number of outputs");
    return 0;
}

/* sums(weights) */
static PyObject *walk_sums(PyObject *object, PyObject *weights)
{
    return are_weights(weights) ? add_up_entries((Walk *)object, weights) : NULL;
}

/* try_sums(step, weights): how many learners were new, and the sums; None if one must wait. */
static PyObject *walk_try_sums(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    Walk *self = (Walk *)object;
    if (n_args != 2) {
        PyErr_SetString(PyExc_TypeError, "try_sums takes a step and weights");
        return NULL;
    }
    Py_ssize_t n, tried = 0, new = 0;
    const int32_t *learners = learners_of(self, args[0], &n);
    if (!learners || !are_weights(args[1]))
        return NULL;
    const Pool *pool = &self->tree->pool;
    const Row row = {self->values, self->known, self->missing};
    int waits = 0;
    for (; tried < n && !waits; tried++) {
        int32_t number = learners[tried];
        if (self->done[number])
            continue;
        int32_t at = pool->learners[number].root;
        go_on(pool, &row, &at, 1, pool->learners[number].depth, pool->learners[number].kinds);
        waits = waits_for(self, at, self->outputs + number) >= 0;
        if (!waits) {
            self->done[number] = 2; /* for this call only */
            new ++;
        }
    }
    PyObject *sums = waits ? NULL : add_up_entries(self, args[1]);
    for (Py_ssize_t i = 0; i < tried; i++)
        if (self->done[learners[i]] == 2)
            self->done[learners[i]] = 0;
    if (waits)
        Py_RETURN_NONE;
    if (!sums)
        return NULL;
    PyObject *both = Py_BuildValue("nO", new, sums);
    Py_DECREF(sums);
    return both;
}

/* -- Phi by the codes of leaves ------------------------------------------------------------------------------------ */

/* The outputs of weak learners at many rows, as training sees them: which leaf a row reaches, and what each leaf gives.
 * Products take a few columns of the other matrix at a time, and several sums side by side, so that their additions
 * overlap.  Each sum is added up in the order of the learners, or of the rows, whatever is done side by side and
 * however many columns there are. */
#if defined(__GNUC__) || defined(__clang__)
#define FOR_CONSTANTS static inline __attribute__((always_inline)) /* a copy for each constant that it is called with */
#else
#define FOR_CONSTANTS static inline
#endif
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) /* the same sums, to the last bit */
#define WIDER __attribute__((target("avx2")))
#endif
#define TOTALS 16      /* that are added up side by side: as many as the registers hold */
#define CODED_ROWS 256 /* whose codes stay in the cache while one learner after the other reads them */

typedef struct {
    const void *codes;    /* (n_rows, n_learners), of one, two or four bytes */
    const double *values; /* (n_learners, n_leaves) */
    Py_ssize_t n_rows, n_learners, n_leaves;
} Coded;

typedef struct {
    const Coded *phi;
    const double *other; /* the matrix that Phi or its transpose is multiplied with */
    double *sums;        /* the result */
    Py_ssize_t n_columns, begin, stop; /* of both; the rows of the result that are wanted */
} Product;

FOR_CONSTANTS double value_at(const Coded *phi, Py_ssize_t row, Py_ssize_t learner, Py_ssize_t size)
{
    Py_ssize_t at = row * phi->n_learners + learner;
    size_t code = size == 1 ? ((const uint8_t *)phi->codes)[at]
                            : size == 2 ? ((const uint16_t *)phi->codes)[at] : ((const uint32_t *)phi->codes)[at];
    return phi->values[(size_t)learner * phi->n_leaves + code];
}

/* Add the learners from `first` to `end` to the sums of `n` rows, or, transposed, the rows from `first` to `end` to the
 * sums of `n` learners. */
FOR_CONSTANTS void add_side_by_side(const Product *product, Py_ssize_t at, Py_ssize_t first, Py_ssize_t end,
                                    Py_ssize_t column, int transposed, Py_ssize_t size, Py_ssize_t wide, Py_ssize_t n)
{
    const Coded *phi = product->phi;
    const Py_ssize_t n_columns = product->n_columns;
    double *sums = product->sums + at * n_columns + column, totals[TOTALS];
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t k = 0; k < wide; k++)
            totals[i * wide + k] = sums[i * n_columns + k];
    for (Py_ssize_t j = first; j < end; j++) {
        const double *other = product->other + j * n_columns + column;
        for (Py_ssize_t i = 0; i < n; i++) {
            double value = transposed ? value_at(phi, j, at + i, size) : value_at(phi, at + i, j, size);
            for (Py_ssize_t k = 0; k < wide; k++)
                totals[i * wide + k] += value * other[k];
        }
    }
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t k = 0; k < wide; k++)
            sums[i * n_columns + k] = totals[i * wide + k];
}

/* Have the codes of some rows at hand: learners read them a few bytes at a time, too far apart to be foreseen. */
static void fetch_codes(const Product *product, Py_ssize_t first, Py_ssize_t end, Py_ssize_t size)
{
#if defined(__GNUC__) || defined(__clang__)
    for (Py_ssize_t row = first; row < end; row++) {
        const char *codes = (const char *)product->phi->codes + row * product->phi->n_learners * size;
        for (Py_ssize_t at = product->begin * size; at < product->stop * size; at += 64)
            __builtin_prefetch(codes + at);
    }
#else
    (void)product, (void)first, (void)end, (void)size;
#endif
}

/* Some columns of the product. */
FOR_CONSTANTS void add_columns(const Product *product, Py_ssize_t column, int transposed, Py_ssize_t size,
                               Py_ssize_t wide, Py_ssize_t n)
{
    const Py_ssize_t all = transposed ? product->phi->n_rows : product->phi->n_learners;
    const Py_ssize_t step = transposed ? CODED_ROWS : all;
    for (Py_ssize_t first = 0; first < all; first += step) {
        Py_ssize_t end = all - first < step ? all : first + step, at = product->begin;
        if (transposed)
            fetch_codes(product, first, end, size);
        for (; at + n <= product->stop; at += n)
            add_side_by_side(product, at, first, end, column, transposed, size, wide, n);
        for (; at < product->stop; at++)
            add_side_by_side(product, at, first, end, column, transposed, size, wide, 1);
    }
}

FOR_CONSTANTS void multiply_in(const Product *product, int transposed, Py_ssize_t size)
{
    Py_ssize_t column = 0, left;
    while ((left = product->n_columns - column) > 0)
        if (left >= 8) {
            add_columns(product, column, transposed, size, 8, TOTALS / 8);
            column += 8;
        } else if (left >= 4) {
            add_columns(product, column, transposed, size, 4, TOTALS / 4);
            column += 4;
        } else if (left >= 2) {
            add_columns(product, column, transposed, size, 2, TOTALS / 2);
            column += 2;
        } else {
            add_columns(product, column, transposed, size, 1, TOTALS / 2);
            column += 1;
        }
}

FOR_CONSTANTS void multiply_any(const Product *product, int transposed, Py_ssize_t size)
{
    if (size == 1 && transposed)
        multiply_in(product, 1, 1);
    else if (size == 1)
        multiply_in(product, 0, 1);
    else if (size == 2 && transposed)
        multiply_in(product, 1, 2);
    else if (size == 2)
        multiply_in(product, 0, 2);
    else if (transposed)
        multiply_in(product, 1, 4);
    else
        multiply_in(product, 0, 4);
}

#ifdef WIDER
WIDER static void multiply_wider(const Product *product, int transposed, Py_ssize_t size)
{
    multiply_any(product, transposed, size);
}
#endif

static void multiply(const Product *product, int transposed, Py_ssize_t size)
{
#ifdef WIDER
    if (__builtin_cpu_supports("avx2")) {
        multiply_wider(product, transposed, size);
        return;
    }
#endif
    multiply_any(product, transposed, size);
}

/* multiply(codes, values, other, sums, sizes, transposed, begin, stop): the rows of `sums` from `begin` to `stop`, all
 * zero before.  `sizes` are the numbers of rows, learners, leaves of a learner, and columns of `other`.  Python sees
 * to it that each code is below the number of leaves. */
static PyObject *multiply_codes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *arrays[4], *result = NULL;
    int transposed, n_found = 0;
    Coded phi;
    Product product;
    Py_buffer found[4];
    if (!PyArg_ParseTuple(args, "OOOO(nnnn)pnn", arrays, arrays + 1, arrays + 2, arrays + 3, &phi.n_rows,
                          &phi.n_learners, &phi.n_leaves, &product.n_columns, &transposed, &product.begin,
                          &product.stop))
        return NULL;
    for (; n_found < 4; n_found++)
        if (PyObject_GetBuffer(arrays[n_found], found + n_found, n_found < 3 ? PyBUF_SIMPLE : PyBUF_WRITABLE) < 0)
            goto done;
    const Py_ssize_t most = PY_SSIZE_T_MAX / 8, n = phi.n_rows, T = phi.n_learners, L = phi.n_leaves;
    const Py_ssize_t K = product.n_columns, n_sums = transposed ? T : n;
    int right = n > 0 && T > 0 && L > 0 && K > 0 && n <= most / T && L <= most / T && K <= most / T && K <= most / n;
    Py_ssize_t size = right ? found[0].len / (n * T) : 0;
    right = right && (size == 1 || size == 2 || size == 4) && found[0].len == n * T * size &&
            found[1].len == T * L * 8 && found[2].len == (transposed ? n : T) * K * 8 &&
            found[3].len == n_sums * K * 8 && product.begin >= 0 && product.begin <= product.stop &&
            product.stop <= n_sums;
    for (int i = 0; right && i < 4; i++)
        right = (uintptr_t)found[i].buf % (i ? sizeof(double) : (size_t)size) == 0;
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "an array of the product has the wrong size, or is not aligned");
        goto done;
    }
    phi.codes = found[0].buf;
    phi.values = found[1].buf;
    product.phi = &phi;
    product.other = found[2].buf;
    product.sums = found[3].buf;
    PyThreadState *thread = PyEval_SaveThread();
    multiply(&product, transposed, size);
    PyEval_RestoreThread(thread);
    result = Py_NewRef(Py_None);
done:
    for (int i = 0; i < n_found; i++)
        PyBuffer_Release(found + i);
    return result;
}

/* -- learners that look at none of some columns -------------------------------------------------------------------- */

#define MOST_DEPTH 1000 /* of a learner: each level is a call, as in Python, which goes no deeper either */

enum { DEAD_SPLIT = 1, DEAD_LEAF = 2 };
enum { NO_MEMORY = 1, NO_TREE = 2 };

/* A list that grows. */
typedef struct {
    void *items;
    Py_ssize_t n, room;
} List;

/* Room for one more item of a list; NULL if there is no memory. */
static void *one_more(List *list, size_t size)
{
    if (list->n == list->room) {
        Py_ssize_t room = list->room ? 2 * list->room : 256;
        void *items = realloc(list->items, (size_t)room * size);
        if (!items)
            return NULL;
        list->items = items;
        list->room = room;
    }
    return (char *)list->items + (size_t)list->n++ * size;
}

/* A position of a new learner. */
typedef struct {
    int64_t origin; /* the old position that it does the same as; -1 for a leaf with a value of its own */
    int64_t left, right;
    double value;
} Made;

/* Learners in the making; `_Rewriting` (model/averaging.py) is the same in Python, and says what is made. */
typedef struct {
    const int64_t *feature, *left, *right, *linear;
    const double *share, *value, *means;
    const uint8_t *dead;
    Py_ssize_t n_positions, n_means;
    List made;    /* of Made */
    List waiting; /* of int64_t: made positions that no learner has yet; a visit leaves what it found on top */
    int wrong;
} Rewriting;

static int64_t make(Rewriting *self, int64_t origin, int64_t left, int64_t right, double value)
{
    Made *made = one_more(&self->made, sizeof(Made));
    if (!made) {
        self->wrong = NO_MEMORY;
        return -1;
    }
    *made = (Made){origin, left, right, value};
    return (int64_t)self->made.n - 1;
}

static void let_wait(Rewriting *self, int64_t position)
{
    int64_t *place = one_more(&self->waiting, sizeof(int64_t));
    if (place)
        *place = position;
    else
        self->wrong = NO_MEMORY;
}

static double visit_old(Rewriting *self, int64_t at, double factor, int depth);

/* One side of a split; the number of positions that it left on top, at least one. */
static Py_ssize_t visit_side(Rewriting *self, int64_t at, double factor, int depth)
{
    const Py_ssize_t before = self->waiting.n;
    double left_over = visit_old(self, at, factor, depth);
    if (left_over != 0.0 || self->waiting.n == before)
        let_wait(self, make(self, -1, -1, -1, left_over));
    return self->waiting.n - before;
}

/* Leave positions on top whose sum is `factor` times what the old one says on average; the constant beside them. */
static double visit_old(Rewriting *self, int64_t at, double factor, int depth)
{
    if (self->wrong)
        return 0.0;
    if (at < 0 || at >= self->n_positions || depth > MOST_DEPTH) {
        self->wrong = NO_TREE;
        return 0.0;
    }
    if (self->feature[at] < 0) {
        const int64_t column = self->linear[at];
        double value = factor * self->value[at];
        if (column < 0)
            return value;
        if (self->dead[at] & DEAD_LEAF && column < self->n_means)
            return value * self->means[column];
        let_wait(self, make(self, at, -1, -1, value));
        return 0.0;
    }
    if (self->dead[at] & DEAD_SPLIT) {
        const double share = self->share[at];
        double constant = 0.0;
        if (share > 0) /* where no training row went, nothing is known */
            constant += visit_old(self, self->left[at], factor * share, depth + 1);
        if (1.0 - share > 0)
            constant += visit_old(self, self->right[at], factor * (1.0 - share), depth + 1);
        return constant;
    }
    const Py_ssize_t before = self->waiting.n;
    const Py_ssize_t n_left = visit_side(self, self->left[at], factor, depth + 1);
    const Py_ssize_t n_right = visit_side(self, self->right[at], factor, depth + 1);
    /* the shorter side is filled up with leaves that say nothing; their numbers follow each other */
    const Py_ssize_t n = n_left > n_right ? n_left : n_right, n_short = n_left < n_right ? n_left : n_right;
    const int64_t first_filler = (int64_t)self->made.n;
    for (Py_ssize_t i = n_short; i < n && !self->wrong; i++)
        make(self, -1, -1, -1, 0.0);
    for (Py_ssize_t i = 0; i < n && !self->wrong; i++) {
        const int64_t *sides = (const int64_t *)self->waiting.items + before, filler = first_filler + i - n_short;
        int64_t left = i < n_left ? sides[i] : filler, right = i < n_right ? sides[n_left + i] : filler;
        let_wait(self, make(self, at, left, right, 0.0));
    }
    if (!self->wrong) { /* the pairs take the place of both sides */
        int64_t *sides = (int64_t *)self->waiting.items + before;
        memmove(sides, sides + n_left + n_right, (size_t)n * sizeof(int64_t));
        self->waiting.n = before + n;
    }
    return 0.0;
}

/* rewrite(roots, feature, left, right, linear, share, value, dead, means): the learners of some roots without what is
 * dead (a byte of each position: bit 0 its split, bit 1 its leaf).  Three bytes objects: the positions that were made
 * (`Made`), the new roots, and how many of them each old one has, both int64. */
static PyObject *rewrite(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *arrays[9], *result = NULL;
    Py_buffer found[9];
    int n_found = 0;
    List counts = {0};
    Rewriting self = {0};
    if (!PyArg_UnpackTuple(args, "rewrite", 9, 9, arrays, arrays + 1, arrays + 2, arrays + 3, arrays + 4, arrays + 5,
                           arrays + 6, arrays + 7, arrays + 8))
        return NULL;
    for (; n_found < 9; n_found++)
        if (PyObject_GetBuffer(arrays[n_found], found + n_found, PyBUF_SIMPLE) < 0)
            goto done;
    const Py_ssize_t n = self.n_positions = found[7].len;
    int right = found[0].len % 8 == 0 && found[8].len % 8 == 0;
    for (int i = 0; i < 9; i++)
        right = right && (i == 7 || (uintptr_t)found[i].buf % 8 == 0) && (i < 1 || i > 6 || found[i].len / 8 == n);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "an array of the learners has the wrong size, or is not aligned");
        goto done;
    }
    const int64_t *roots = found[0].buf;
    self.feature = found[1].buf;
    self.left = found[2].buf;
    self.right = found[3].buf;
    self.linear = found[4].buf;
    self.share = found[5].buf;
    self.value = found[6].buf;
    self.dead = found[7].buf;
    self.means = found[8].buf;
    self.n_means = found[8].len / 8;
    PyThreadState *thread = PyEval_SaveThread();
    for (Py_ssize_t i = 0; i < found[0].len / 8 && !self.wrong; i++) {
        int64_t *count = one_more(&counts, sizeof(int64_t));
        if (count)
            *count = (int64_t)visit_side(&self, roots[i], 1.0, 0);
        else
            self.wrong = NO_MEMORY;
    }
    PyEval_RestoreThread(thread);
    if (self.wrong == NO_MEMORY)
        PyErr_NoMemory();
    else if (self.wrong)
        PyErr_SetString(PyExc_ValueError, "the weak learners name positions that do not exist, or are over 1000 levels deep");
    else
        result = Py_BuildValue("y#y#y#", (const char *)self.made.items, self.made.n * (Py_ssize_t)sizeof(Made),
                               (const char *)self.waiting.items, self.waiting.n * 8, (const char *)counts.items,
                               counts.n * 8);
done:
    free(self.made.items);
    free(self.waiting.items);
    free(counts.items);
    for (int i = 0; i < n_found; i++)
        PyBuffer_Release(found + i);
    return result;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

/* any_infinite(X): whether one of these float64 numbers is infinite. */
static PyObject *any_infinite(PyObject *Py_UNUSED(module), PyObject *X)
{
    Py_buffer numbers;
    if (PyObject_GetBuffer(X, &numbers, PyBUF_ANY_CONTIGUOUS) < 0)
        return NULL;
    if ((uintptr_t)numbers.buf % sizeof(double)) {
        PyBuffer_Release(&numbers);
        PyErr_SetString(PyExc_BufferError, "the numbers are not aligned");
        return NULL;
    }
    const double *x = numbers.buf;
    Py_ssize_t n = numbers.len / (Py_ssize_t)sizeof(double), i = 0;
    int found = 0;
    while (i < n && !found)
        for (Py_ssize_t stop = n - i < 4096 ? n : i + 4096; i < stop; i++)
            found |= (x[i] - x[i] != 0.0) & (x[i] == x[i]); /* the difference is NaN where it is infinite, or NaN */
    PyBuffer_Release(&numbers);
    return PyBool_FromLong(found);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef tree_methods[] = {
    {"run", FAST(tree_run), METH_FASTCALL, "Send rows down the tree: margins, terminals and bought items."},
    {"start", tree_start, METH_NOARGS, "A walk of a row of which nothing is known."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot tree_slots[] = {
    {Py_tp_new, tree_new}, {Py_tp_dealloc, tree_dealloc}, {Py_tp_methods, tree_methods}, {0, NULL}};
static PyType_Spec tree_spec = {"cstc._native.Tree", sizeof(Tree), 0, Py_TPFLAGS_DEFAULT, tree_slots};

static PyMethodDef walk_methods[] = {
    {"fill", FAST(walk_fill), METH_FASTCALL, "A feature's value is known now."},
    {"fill_floats", FAST(walk_fill_floats), METH_FASTCALL, "Values of features, if they are plain floats; whether so."},
    {"go", FAST(walk_go), METH_FASTCALL, "Down the tree: the features that are missing, or the margins at the end."},
    {"go_buying", FAST(walk_go_buying), METH_FASTCALL, "The same, buying values that came along when they are needed."},
    {"begin", walk_begin, METH_O, "Take up the learners of a step."},
    {"advance", walk_advance, METH_NOARGS, "Evaluate as far as known features allow; the features that are missing."},
    {"sums", walk_sums, METH_O, "Weighted sums over learners that are evaluated."},
    {"try_sums", FAST(walk_try_sums), METH_FASTCALL, "How many learners were new and the sums; None if one must wait."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef walk_members[] = {
    {"pending", T_PYSSIZET, offsetof(Walk, pending), READONLY, "learners of the step that are not evaluated yet"},
    {"evaluated", T_PYSSIZET, offsetof(Walk, evaluated), READONLY, "learners that `go` has taken up"},
    {"node", T_PYSSIZET, offsetof(Walk, node), READONLY, "where `go` has come to; -1 before the root"},
    {"terminal", T_PYSSIZET, offsetof(Walk, terminal), READONLY, "where `go` is leaving to; -1 if that is not known"},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot walk_slots[] = {
    {Py_tp_dealloc, walk_dealloc}, {Py_tp_methods, walk_methods}, {Py_tp_members, walk_members}, {0, NULL}};
static PyType_Spec walk_spec = {"cstc._native.Walk", sizeof(Walk), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, walk_slots};

static int prepare(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->walk_type = PyType_FromModuleAndSpec(module, &walk_spec, NULL);
    PyObject *tree_type = PyType_FromModuleAndSpec(module, &tree_spec, NULL);
    if (!state->walk_type || !tree_type)
        return -1;
    int failed = PyModule_AddObjectRef(module, "Tree", tree_type);
    Py_DECREF(tree_type);
    return failed;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->walk_type);
    return 0;
}

static int clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->walk_type);
    return 0;
}

static PyMethodDef methods[] = {
    {"multiply", multiply_codes, METH_VARARGS, "Outputs of weak learners, as codes of leaves, times a matrix."},
    {"rewrite", rewrite, METH_VARARGS, "Learners that look at none of some columns."},
    {"any_infinite", any_infinite, METH_O, "Whether one of these numbers is infinite."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", NULL, sizeof(State), methods, slots, traverse, clear, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
