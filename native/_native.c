/* Batch prediction of a fitted tree, and what is bought on the way.
 *
 * Everything here has a twin in numpy (model/fitted.py, model/pool.py) and adds in the same order, learner by learner,
 * so that both give the same bits.  The caller has checked all positions (model/validate.py); nothing is checked again.
 *
 * Rows are walked in blocks: all rows of a block that stand at one node take one weak learner after the other, so that
 * the learner's positions stay in the cache and the walks of several rows overlap.  Only CPython's limited API is used,
 * and the interpreter's lock is released while rows are walked.
 */
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 128

enum { MISSING_LEFT = 1, ZERO_IS_MISSING = 2, CATEGORICAL = 4, LINEAR = 8 };

/* One position of a learner; the layout is that of the record array that Python packs. */
typedef struct {
    double threshold; /* a row goes left if its value is at most this; at a leaf, its output */
    int32_t feature;  /* the column that is compared; any column at a leaf, whose children are itself */
    int32_t child[2]; /* right, left */
    uint32_t kind;
} Position;

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
    Py_ssize_t n_words;
} Pool;

static int goes_left_by_category(const Pool *pool, int32_t at, double x)
{
    int32_t count = pool->category_count[at];
    if (!(x >= 0.0 && x < (double)count)) /* unknown and missing ones go right */
        return 0;
    return pool->category_left[pool->category_start[at] + (int32_t)x];
}

/* The leaf that one row reaches, whatever kinds of splits the learner has. */
static int32_t walk(const Pool *pool, const Learner *learner, const double *row)
{
    int32_t at = learner->root;
    for (int32_t level = 0; level < learner->depth; level++) {
        const Position *here = pool->positions + at;
        double x = row[here->feature];
        int left;
        if (here->kind & CATEGORICAL) {
            left = goes_left_by_category(pool, at, x);
        } else {
            int missing = x != x;
            if (here->kind & ZERO_IS_MISSING)
                missing |= x <= 1e-35 && x >= -1e-35;
            left = missing ? (here->kind & MISSING_LEFT) != 0 : x <= here->threshold;
        }
        at = here->child[left];
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
            const Position *pa = positions + a, *pb = positions + b, *pc = positions + c, *pd = positions + d;
            double xa = rows[i][pa->feature], xb = rows[i + 1][pb->feature];
            double xc = rows[i + 2][pc->feature], xd = rows[i + 3][pd->feature];
            a = pa->child[(xa <= pa->threshold) | ((xa != xa) & (int)(pa->kind & MISSING_LEFT))];
            b = pb->child[(xb <= pb->threshold) | ((xb != xb) & (int)(pb->kind & MISSING_LEFT))];
            c = pc->child[(xc <= pc->threshold) | ((xc != xc) & (int)(pc->kind & MISSING_LEFT))];
            d = pd->child[(xd <= pd->threshold) | ((xd != xd) & (int)(pd->kind & MISSING_LEFT))];
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
    return here->kind & LINEAR ? here->threshold * row[here->feature] : here->threshold;
}

/* The sums that nodes route and predict with: for each, its learners and their weights. */
typedef struct {
    const int64_t *start;    /* n_sums + 1 */
    const int32_t *learner;  /* ascending within a sum */
    const int32_t *column;   /* the output that the entry adds to */
    const double *weight;
} Sums;

/* Add up one sum at some rows of a block; rows[i] is the row of number at[i] in the block. */
static void add_up(const Pool *pool, const Sums *sums, Py_ssize_t sum, const double **rows, const int32_t *at,
                   Py_ssize_t n, double *totals, Py_ssize_t n_columns, uint64_t *bought)
{
    int32_t leaves[BLOCK];
    double values[BLOCK];
    int32_t last = -1;
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
                for (Py_ssize_t i = 0; i < n; i++) {
                    const uint64_t *items = pool->bits + leaves[i] * pool->n_words;
                    uint64_t *mine = bought + at[i] * pool->n_words;
                    for (Py_ssize_t word = 0; word < pool->n_words; word++)
                        mine[word] |= items[word];
                }
            last = number;
        }
        double weight = sums->weight[entry];
        double *total = totals + sums->column[entry];
        for (Py_ssize_t i = 0; i < n; i++)
            total[i * n_columns] += values[i] * weight;
    }
}

typedef struct {
    Py_ssize_t n_nodes, n_outputs;
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

static PyObject *run(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer X, positions, learners, starts, counts, lefts, bits, rs, rl, rc, rw, ps, pl, pc, pw, upper, lower, thr, inter;
    Py_buffer margins, terminals, bought;
    Py_ssize_t n, n_features, n_words, n_nodes, n_outputs;
    int with_items;
    if (!PyArg_ParseTuple(args, "y*nny*y*y*y*y*y*ny*y*y*y*y*y*y*y*nny*y*y*y*w*w*w*p", &X, &n, &n_features, &positions,
                          &learners, &starts, &counts, &lefts, &bits, &n_words, &rs, &rl, &rc, &rw, &ps, &pl, &pc, &pw,
                          &n_nodes, &n_outputs, &upper, &lower, &thr, &inter, &margins, &terminals, &bought,
                          &with_items))
        return NULL;
    Pool pool = {positions.buf, learners.buf, starts.buf, counts.buf, lefts.buf, bits.buf, n_words};
    Sums routes = {rs.buf, rl.buf, rc.buf, rw.buf}, predicts = {ps.buf, pl.buf, pc.buf, pw.buf};
    Shape shape = {n_nodes, n_outputs, upper.buf, lower.buf, thr.buf, inter.buf};
    double *totals = PyMem_Malloc(sizeof(double) * BLOCK * (n_outputs > 1 ? n_outputs : 1));
    int32_t *begins = PyMem_Malloc(sizeof(int32_t) * 2 * (n_nodes > 0 ? n_nodes : 1));
    if (totals && begins) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t start = 0; start < n; start += BLOCK) {
            Py_ssize_t size = n - start < BLOCK ? n - start : BLOCK;
            run_block(&pool, &routes, &predicts, &shape, (const double *)X.buf + start * n_features, n_features, size,
                      (double *)margins.buf + start * n_outputs, (int32_t *)terminals.buf + start,
                      with_items ? (uint64_t *)bought.buf + start * n_words : NULL, totals, begins, begins + n_nodes);
        }
        Py_END_ALLOW_THREADS
    }
    int failed = !totals || !begins;
    PyMem_Free(totals);
    PyMem_Free(begins);
    Py_buffer *all[] = {&X, &positions, &learners, &starts, &counts, &lefts, &bits, &rs, &rl, &rc, &rw, &ps, &pl, &pc,
                        &pw, &upper, &lower, &thr, &inter, &margins, &terminals, &bought};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        PyBuffer_Release(all[i]);
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, "Send rows down a tree: margins, terminals and bought items."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
