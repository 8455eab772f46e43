"""The paper in plain loops, one row, node, weak learner and item at a time: what the fast code is held to.

Written from the paper (eq. nodeloss, section "Tree loss") and nothing of `cstc` is imported.  A `shape` has the
arrays `upper` and `lower` (a number below 0 is terminal ``-1 - number``), a `tree` has a shape and the weights of
its nodes, a `pool` holds the flat arrays of the weak learners.
"""

import math

# ------------------------------------------------------------------------------------- traversal


def paths(shape):
    """The classifiers from the root to each terminal, ``pi^l``: a list of lists."""
    found = {}

    def visit(position, above):
        if position < 0:
            found[-1 - position] = above
            return
        for child in (shape.upper[position], shape.lower[position]):
            visit(child, [*above, position])

    visit(0, [])
    return [found[terminal] for terminal in range(len(found))]


def sigmoid(a):
    return 1.0 / (1.0 + math.exp(-a)) if a > -700 else 0.0


def soft_traversal(shape, gates):
    """Probabilities that one row reaches each node and each terminal, from its gate values."""
    nodes, terminals = [0.0] * len(shape.upper), [0.0] * len(paths(shape))

    def visit(position, probability):
        if position < 0:
            terminals[-1 - position] += probability  # both ways out of a leaf classifier lead to one terminal
            return
        nodes[position] = probability
        visit(shape.upper[position], probability * gates[position])
        visit(shape.lower[position], probability * (1.0 - gates[position]))

    visit(0, 1.0)
    return nodes, terminals


def hard_traversal(shape, is_above):
    """The terminal of one row, and the classifiers that it passes; `is_above(node)` compares with the threshold."""
    position, passed = 0, []
    while position >= 0:
        passed.append(position)
        goes_up = shape.upper[position] != shape.lower[position] and is_above(position)
        position = shape.upper[position] if goes_up else shape.lower[position]
    return -1 - position, passed


# ------------------------------------------------------------------------------------ global loss


def risk(name, margins, y):
    """``l(a, y)`` of one row."""
    if name == "squared":
        return (margins[0] - y) ** 2
    if name == "logistic":
        signed = margins[0] if y == 1 else -margins[0]
        return math.log1p(math.exp(-signed)) if signed > -30 else -signed + math.log1p(math.exp(signed))
    largest = max(margins)
    return largest + math.log(sum(math.exp(a - largest) for a in margins)) - margins[y]


def smooth_root(square, floor):
    """Lemma 1 with a floor: the minimum over z >= floor of (square / z + z) / 2."""
    z = max(math.sqrt(square), floor)
    return (square / z + z) / 2


def bent(norm, sharpness):
    """The share of a price that is charged for a norm; 0 is the paper's relaxation."""
    return norm * (1 + sharpness) / (1 + sharpness * norm)


def path_cost(weights, path, penalty):
    """Relaxed cost of the classifiers on one path; all columns of a node are in the same groups."""
    n_learners, _, n_columns = weights.shape
    on_path = [[weights[t, j, q] for j in path for q in range(n_columns)] for t in range(n_learners)]
    cost = 0.0
    for t in range(n_learners):
        square = sum(weight**2 for weight in on_path[t])
        cost += penalty.evaluation[t] * bent(smooth_root(square, penalty.floor), penalty.sharpness)
    for r in range(len(penalty.prices)):
        square = sum((penalty.learner_items[t, r] * w) ** 2 for t in range(n_learners) for w in on_path[t])
        cost += penalty.prices[r] * bent(smooth_root(square, penalty.floor), penalty.sharpness)
    return cost


def l1_term(weights, penalty):
    """``rho * |B|_1``, each absolute value a square root of its own."""
    return penalty.l1_weight * sum(smooth_root(weight**2, penalty.floor) for weight in weights.ravel())


def prior_term(parameters, prior):
    """The pull of every node to common weights and intercepts; not in the paper."""
    n_learners, n_nodes, n_columns = parameters.weights.shape
    total = 0.0
    for k in range(n_nodes):
        for q in range(n_columns):
            total += (parameters.intercepts[k, q] - prior.intercepts[q]) ** 2
            for t in range(n_learners):
                total += (parameters.weights[t, k, q] - prior.weights[t, q]) ** 2
    return prior.strength * total


def node_margins(phi_row, parameters, node):
    """Outputs of one classifier for one row, and its gate behind them where it has one of its own."""
    n_learners, _, n_columns = parameters.weights.shape
    return [
        sum(phi_row[t] * parameters.weights[t, node, q] for t in range(n_learners)) + parameters.intercepts[node, q]
        for q in range(n_columns)
    ]


def row_gates(phi_row, shape, parameters, gate_slope=1.0):
    """Probability that one row goes up, at every node."""
    return [
        sigmoid(gate_slope * (node_margins(phi_row, parameters, k)[-1] - parameters.thresholds[k]))
        for k in range(len(shape.upper))
    ]


def global_loss(phi, y, sample_weight, loss, shape, parameters, penalty, gate_slope=1.0, prior=None):
    """Eq. nodeloss: expected risk of all nodes + rho * l1 + lam * expected relaxed cost, and the pull of a prior."""
    costs = [path_cost(parameters.weights, path, penalty) for path in paths(shape)]
    total = l1_term(parameters.weights, penalty)
    if prior is not None:
        total += prior_term(parameters, prior)
    for i in range(len(y)):
        share = sample_weight[i] / sum(sample_weight)
        nodes, terminals = soft_traversal(shape, row_gates(phi[i], shape, parameters, gate_slope))
        for k, probability in enumerate(nodes):
            margins = node_margins(phi[i], parameters, k)[: loss.n_outputs]
            total += share * probability * risk(loss.name, margins, y[i])
        for l, probability in enumerate(terminals):
            total += penalty.cost_weight * share * probability * costs[l]
    return total


# -------------------------------------------------------------------- weak learners and exact cost


def evaluate_learner(pool, learner, x):
    """Output of one weak learner for one row, and the features that the row's branch needs."""
    position, features = pool.roots[learner], set()
    while pool.feature[position] >= 0:
        features.add(int(pool.feature[position]))
        position = (pool.left if goes_left(pool, position, x) else pool.right)[position]
    output = pool.value[position]
    if pool.linear_feature[position] >= 0:
        features.add(int(pool.linear_feature[position]))
        output = output * x[pool.linear_feature[position]]
    return output, features


def goes_left(pool, position, x):
    value = x[pool.feature[position]]
    if pool.category_start[position] >= 0:  # unknown and missing categories go right
        known = not math.isnan(value) and 0 <= value < pool.category_count[position]
        return known and bool(pool.category_left[pool.category_start[position] + int(value)])
    if math.isnan(value) or (pool.zero_is_missing[position] and value == 0):
        return bool(pool.missing_left[position])
    return value <= pool.threshold[position]


def averaged_learner(pool, learner, x, known, means):
    """What a weak learner says on average of one row of which only the features in `known` are known."""

    def visit(position):
        feature = pool.feature[position]
        if feature < 0:
            column = pool.linear_feature[position]
            if column < 0:
                return pool.value[position]
            return pool.value[position] * (x[column] if column in known else means[column])
        if feature in known:
            return visit((pool.left if goes_left(pool, position, x) else pool.right)[position])
        share = pool.share_left[position]
        sides = ((pool.left[position], share), (pool.right[position], 1.0 - share))
        return sum(part * visit(child) for child, part in sides if part > 0)

    return visit(pool.roots[learner])


def averaged_features(pool, learner, x, known):
    """The known features that a weak learner looks at when it goes both ways where it knows nothing."""
    found, waiting = set(), [pool.roots[learner]]
    while waiting:
        position = waiting.pop()
        feature = pool.feature[position]
        if feature < 0:
            if pool.linear_feature[position] in known:
                found.add(int(pool.linear_feature[position]))
        elif feature in known:
            found.add(int(feature))
            waiting.append((pool.left if goes_left(pool, position, x) else pool.right)[position])
        else:
            waiting += [pool.left[position], pool.right[position]]
    return found


def averaged_margins(tree, x, known, expert):
    """What an expert says of one row of which only the features in `known` are known; nodes first, then fallbacks."""
    n_nodes, n_outputs = tree.predict_weights.shape[1:]
    own = expert < n_nodes
    weights = tree.predict_weights[:, expert] if own else tree.fallback_weights[:, expert - n_nodes]
    margins = list(tree.predict_intercepts[expert] if own else tree.fallback_intercepts[expert - n_nodes])
    for t in range(len(weights)):
        if any(weights[t, q] != 0 for q in range(n_outputs)):
            said = averaged_learner(tree.pool, t, x, known, tree.schema.means)
            margins = [margins[q] + said * weights[t, q] for q in range(n_outputs)]
    return margins


def says_nothing(tree, expert, known):
    """Whether an expert looks at features and none of them is known: then the constant answers."""
    features = {f for t in expert_learners(tree, expert) for f in learner_features(tree.pool, t)}
    return bool(features) and not features & known


def averaged_route(tree, x, known, idle):
    """Where a row goes when its gates are averaged: the terminal, the nodes, and the features that they look at.

    Gates that decide nothing (`idle`) send all rows to the lower side.
    """
    learners = range(tree.predict_weights.shape[0])
    looked = set()

    def is_above(node):
        if idle[node]:
            return False
        used = [t for t in learners if tree.route_weights[t, node] != 0]
        said = [averaged_learner(tree.pool, t, x, known, tree.schema.means) for t in used]
        for t in used:
            looked.update(averaged_features(tree.pool, t, x, known))
        return sum(a * tree.route_weights[t, node] for a, t in zip(said, used, strict=True)) > tree.thresholds[node]

    terminal, path = hard_traversal(tree.shape, is_above)
    return terminal, path, looked


def experts_by_loss(tree, node, gone):
    """The experts for the rows of a node, each with what it is expected to lose without some features, best first."""
    estimates, found = tree.estimates, []
    for e in range(estimates.losses.shape[1]):
        if estimates.losses[node, e] < 0:
            continue
        features = {f for t in expert_learners(tree, e) for f in learner_features(tree.pool, t)}
        loss = estimates.losses[node, e]
        for s in range(len(estimates.source_names)):
            if any(f in gone and estimates.source_features[s, f] for f in features):
                loss += estimates.harm[e, s]
        found.append((loss, e, features))
    return sorted(found, key=lambda entry: entry[:2])


def expert_learners(tree, expert):
    """The weak learners of an expert: that of a node, or a fallback."""
    n_learners, n_nodes, n_outputs = tree.predict_weights.shape
    weights = tree.predict_weights[:, expert] if expert < n_nodes else tree.fallback_weights[:, expert - n_nodes]
    return [t for t in range(n_learners) if any(weights[t, q] != 0 for q in range(n_outputs))]


def experts_without(tree, gone):
    """The expert that each node answers with when some features are gone, and the gates that decide nothing."""
    costs, shape, n = tree.costs, tree.shape, len(tree.shape.upper)
    experts, idle = list(range(n)), [False] * n
    if tree.estimates is None:
        return experts, idle
    own = [{f for t in expert_learners(tree, k) for f in learner_features(tree.pool, t)} for k in range(n)]

    def routed(nodes):
        learners = [t for t in range(len(tree.route_weights)) if any(tree.route_weights[t, k] != 0 for k in nodes)]
        return {f for t in learners for f in learner_features(tree.pool, t)}

    way = [[j for j in range(n) if shape.node_paths[k, j]] for k in range(n)]

    def best(node, bought):
        paid = items_of(bought - gone, costs.feature_items)

        def price(features):
            return sum(costs.prices[r] for r in items_of(features, costs.feature_items) - paid)

        planned, found = price(own[node] | routed(way[node])), []
        healthy = tree.estimates.losses[node, node]
        for loss, expert, features in experts_by_loss(tree, node, gone):
            harm = loss - tree.estimates.losses[node, expert]
            loss = max(tree.estimates.losses[node, expert], healthy) + harm
            value = loss + tree.estimates.cost_weight * max(0.0, price(features - gone) - planned)
            found.append((value, expert, loss))
        mine = [loss for _, expert, loss in found if expert == node]
        if not found or (mine and min(found)[2] >= mine[0]):
            return node
        return min(found)[1]

    predictive = [shape.upper[k] < 0 or shape.lower[k] < 0 for k in range(n)]
    for k in range(n):
        if predictive[k] and own[k] & gone:
            experts[k] = best(k, routed(way[k]))
    for k in range(n):
        is_gate, parent = shape.upper[k] != shape.lower[k], shape.parents[k]
        if parent >= 0 and idle[parent]:
            idle[k] = is_gate
            continue
        below = [j for j in range(n) if shape.node_paths[j, k]]
        answers = {experts[j] for j in below if predictive[j]}
        if is_gate and len(answers) == 1 and answers != {k}:
            chosen = best(k, routed(way[parent]) if parent >= 0 else set())
            for j in below:
                experts[j] = chosen
            idle[k] = True
    return experts, idle


class BudgetedRow:
    """One row that must not cost more than a budget, bought wave by wave: `margins` and `cost`."""

    def __init__(self, tree, x, budget):
        self.tree, self.x, self.budget = tree, x, budget
        self.known, self.items, self.done = set(), set(), set()
        self.is_early = False
        node, path = 0, [0]
        while True:
            upper, lower = tree.shape.upper[node], tree.shape.lower[node]
            if upper == lower:
                break
            gate = [t for t in range(len(tree.route_weights)) if tree.route_weights[t, node] != 0]
            if not self.run(gate):
                self.answer_early(path)
                return
            margin = sum(evaluate_learner(tree.pool, t, x)[0] * tree.route_weights[t, node] for t in gate)
            child = upper if margin > tree.thresholds[node] else lower
            if child < 0:
                break
            node = child
            path.append(node)
        if self.run(expert_learners(tree, node)):
            self.answer_with(node)
        else:
            self.answer_early(path)

    def price(self, items, n_evaluated):
        costs = self.tree.costs
        return sum(costs.prices[r] for r in items) + costs.evaluation * n_evaluated

    def lacks(self, learner):
        """The feature at which a learner stops; None if it comes to its end."""
        pool, position = self.tree.pool, self.tree.pool.roots[learner]
        while pool.feature[position] >= 0:
            if pool.feature[position] not in self.known:
                return int(pool.feature[position])
            position = (pool.left if goes_left(pool, position, self.x) else pool.right)[position]
        column = int(pool.linear_feature[position])
        return None if column < 0 or column in self.known else column

    def run(self, learners):
        """Evaluate learners, buying what they ask for; whether the budget reached."""
        waiting = [t for t in learners if t not in self.done]
        if self.price(self.items, len(self.done) + len(waiting)) > self.budget:
            return False
        while True:
            self.done |= {t for t in waiting if self.lacks(t) is None}
            waiting = [t for t in waiting if t not in self.done]
            if not waiting:
                return True
            wave = {self.lacks(t) for t in waiting}
            items = self.items | items_of(wave, self.tree.costs.feature_items)
            n = len(self.done) + len(waiting)
            if self.price(items, n) > self.budget:
                return False
            if self.tree.estimates is not None and not self.is_early:  # what may come later is looked at, too
                features = {f for t in learners for f in learner_features(self.tree.pool, t)}
                whole = items | items_of(features - self.known, self.tree.costs.feature_items)
                much = self.price(items - self.items, 0) >= 0.25 * self.price(whole - self.items, 0)
                if much and self.price(whole, n) > self.budget:
                    return False
            self.known |= wave
            self.items = items

    def answer_with(self, expert):
        """The margins of an expert, averaged over what is not known; its learners are paid."""
        self.margins = averaged_margins(self.tree, self.x, self.known, expert)
        self.done |= set(expert_learners(self.tree, expert))
        self.cost = self.price(self.items, len(self.done))

    def answer_early(self, path):
        tree, self.is_early = self.tree, True
        estimated = [] if tree.estimates is None else experts_by_loss(tree, path[-1], set())
        for _, expert, features, is_part in self.options(estimated):
            further = items_of(features - self.known, tree.costs.feature_items)
            learners = expert_learners(tree, expert)
            if self.price(self.items | further, len(self.done | set(learners))) <= self.budget:
                if is_part:
                    self.known |= features
                    self.items |= further
                else:
                    assert self.run(learners)
                self.answer_with(expert)
                return
        own = path[-1]
        for expert in [entry[1] for entry in estimated] or reversed(path):
            learners = expert_learners(tree, expert)
            if all(self.lacks(t) is None for t in learners) and self.can_pay(learners):
                self.answer_with(expert)
                return
        learners = expert_learners(tree, own)
        features = {f for t in learners for f in learner_features(tree.pool, t)}
        if features & self.known and self.can_pay(learners):
            self.answer_with(own)
        else:
            self.margins, self.cost = list(tree.constant), self.price(self.items, len(self.done))

    def options(self, estimated):
        """Experts with all their features, and with those of a set, averaged over the others; the least loss first."""
        estimates, found = self.tree.estimates, []
        for loss, expert, features in estimated:
            found.append((loss, expert, features, False))
            for s in range(len(estimates.sets)):
                part = {f for f in features if estimates.sets[s, f]}
                if estimates.set_harm[expert, s] >= 0 and part:
                    found.append((loss + estimates.set_harm[expert, s], expert, part, True))
        return sorted(found, key=lambda entry: entry[0])

    def can_pay(self, learners):
        return self.price(self.items, len(self.done | set(learners))) <= self.budget


def learner_features(pool, learner):
    """All features of a weak learner, whatever branch is taken."""
    features, waiting = set(), [pool.roots[learner]]
    while waiting:
        position = waiting.pop()
        if pool.feature[position] >= 0:
            features.add(int(pool.feature[position]))
            waiting += [pool.left[position], pool.right[position]]
        elif pool.linear_feature[position] >= 0:
            features.add(int(pool.linear_feature[position]))
    return features


def items_of(features, feature_items):
    """The bill of a set of features: each item once."""
    return {r for f in features for r in range(feature_items.shape[1]) if feature_items[f, r]}


def path_learners(tree, path):
    """Learners with a weight on a path: in the gates of its routing nodes, or in the last one's prediction."""
    n_learners, _, n_outputs = tree.predict_weights.shape
    routing = [k for k in path if tree.shape.upper[k] != tree.shape.lower[k]]
    return [
        t
        for t in range(n_learners)
        if any(tree.route_weights[t, k] != 0 for k in routing)
        or any(tree.predict_weights[t, path[-1], q] != 0 for q in range(n_outputs))
    ]


def exact_path_costs(tree, pool, costs):
    """``c^l`` with its l0 norms: every learner and every item on the path is paid once."""
    found = []
    for path in paths(tree.shape):
        learners = path_learners(tree, path)
        items = items_of({f for t in learners for f in learner_features(pool, t)}, costs.feature_items)
        found.append(costs.evaluation * len(learners) + sum(costs.prices[r] for r in items))
    return found


class RowOutcome:
    """One row under hard routing: `terminal`, `margins`, and the `items` and `cost` of both countings."""

    def __init__(self, tree, pool, costs, x):
        n_learners, _, n_outputs = tree.predict_weights.shape
        outputs = [evaluate_learner(pool, t, x)[0] for t in range(n_learners)]

        def is_above(node):
            used = [t for t in range(n_learners) if tree.route_weights[t, node] != 0]
            return sum(outputs[t] * tree.route_weights[t, node] for t in used) > tree.thresholds[node]

        self.terminal, path = hard_traversal(tree.shape, is_above)
        learners = path_learners(tree, path)
        last = path[-1]
        used = [t for t in learners if any(tree.predict_weights[t, last, q] != 0 for q in range(n_outputs))]
        self.margins = [
            sum(outputs[t] * tree.predict_weights[t, last, q] for t in used) + tree.predict_intercepts[last, q]
            for q in range(n_outputs)
        ]
        features = {
            "branch": {f for t in learners for f in evaluate_learner(pool, t, x)[1]},
            "learner": {f for t in learners for f in learner_features(pool, t)},
        }
        self.items = {counting: items_of(found, costs.feature_items) for counting, found in features.items()}
        self.cost = {
            counting: costs.evaluation * len(learners) + sum(costs.prices[r] for r in items)
            for counting, items in self.items.items()
        }


def exact_loss(tree, pool, costs, X, y, sample_weight, loss, cost_weight):
    """Mean risk where the rows end + cost_weight * mean cost of the branches that they take."""
    total = 0.0
    for i in range(len(y)):
        row = RowOutcome(tree, pool, costs, X[i])
        total += sample_weight[i] * (risk(loss.name, row.margins, y[i]) + cost_weight * row.cost["branch"])
    return total / sum(sample_weight)


# ---------------------------------------------------------------------------------------- ranking


def ndcg(grades, scores, qid, k=5):
    """Mean NDCG@k over the queries with a relevant document; equal scores share the gain of their places."""
    values = []
    for query in sorted(set(qid)):
        rows = [i for i in range(len(qid)) if qid[i] == query]
        gains = {i: 2.0 ** grades[i] - 1.0 for i in rows}
        ideal = sum(g / math.log2(place + 2) for place, g in enumerate(sorted(gains.values(), reverse=True)[:k]))
        if ideal == 0:
            continue
        dcg = 0.0
        for place, i in enumerate(sorted(rows, key=lambda i: -scores[i])[:k]):
            tied = [gains[j] for j in rows if scores[j] == scores[i]]
            dcg += sum(tied) / len(tied) / math.log2(place + 2)
        values.append(dcg / ideal)
    return sum(values) / len(values) if values else math.nan


class QueryOutcome:
    """The documents of one query on chains whose gates see places: `scores`, `terminals`, `items` and `costs`.

    `tree` looks at the features and at two made columns for each gate, which are filled node by node.  Nodes that send
    documents to a node on both sides come first and score nobody; then all documents go from level to level.
    """

    def __init__(self, tree, pool, costs, X, at):
        n_learners, n_nodes, _ = tree.predict_weights.shape
        n, n_features = len(X), len(X[0])
        upper, lower = tree.shape.upper.tolist(), tree.shape.lower.tolist()
        is_split = [upper[k] >= 0 and lower[k] >= 0 for k in range(n_nodes)]
        gated = [k for k in range(n_nodes) if not is_split[k] and upper[k] >= 0]
        self.scores, self.terminals = [math.nan] * n, [0] * n
        learners, features = [set() for _ in X], [set() for _ in X]

        def goes_up(i, node, x):
            used = [t for t in range(n_learners) if tree.route_weights[t, node] != 0]
            found = [evaluate_learner(pool, t, x) for t in used]
            learners[i].update(used)
            features[i].update(f for _, met in found for f in met)
            total = sum(out * tree.route_weights[t, node] for t, (out, _) in zip(used, found, strict=True))
            return total > tree.thresholds[node]

        places = [0] * n
        for i in range(n):
            while is_split[places[i]]:
                goes = goes_up(i, places[i], [*X[i], *[0.0] * (2 * len(gated))])
                places[i] = (upper if goes else lower)[places[i]]
        going = list(range(n))
        while going:
            for i in going:
                node = places[i]
                used = [t for t in range(n_learners) if tree.predict_weights[t, node, 0] != 0]
                found = [evaluate_learner(pool, t, X[i]) for t in used]
                total = sum(out * tree.predict_weights[t, node, 0] for t, (out, _) in zip(used, found, strict=True))
                self.scores[i] = total + tree.predict_intercepts[node, 0]
                self.terminals[i] = -1 - lower[node]
                learners[i].update(used)
                features[i].update(f for _, met in found for f in met)
            best = sorted(self.scores, reverse=True)
            bar, still = best[min(at, n) - 1], []
            for i in going:
                if places[i] not in gated:
                    continue
                x, first = [*X[i], *[0.0] * (2 * len(gated))], n_features + 2 * gated.index(places[i])
                x[first : first + 2] = self.scores[i] - bar, float(sum(other > self.scores[i] for other in self.scores))
                if goes_up(i, places[i], x):
                    places[i] = upper[places[i]]
                    still.append(i)
            going = still
        whole = [{f for t in used for f in learner_features(pool, t)} for used in learners]
        self.items = {
            "branch": [items_of(found, costs.feature_items) for found in features],
            "learner": [items_of(found, costs.feature_items) for found in whole],
        }
        self.costs = {
            counting: [
                costs.evaluation * len(used) + sum(costs.prices[r] for r in items)
                for used, items in zip(learners, found, strict=True)
            ]
            for counting, found in self.items.items()
        }


# ----------------------------------------------------------------------------------------- places


def worth_of_places(scores, queries, at, error):
    """What an error at each document can do to NDCG@at: all pairs of all queries, one document at a time."""
    worth = []
    for score, query in zip(scores, queries, strict=True):
        own = [other for other, theirs in zip(scores, queries, strict=True) if theirs == query]
        total = sum(
            abs(_gain(score) - _gain(other))
            * abs(_discount(score, own, at) - _discount(other, own, at))
            * math.exp(-((score - other) ** 2) / (4 * error**2))
            for other in own
        )
        ideal = sum(_gain(other) * _discount(other, own, at) for other in own)
        worth.append(total / ideal if ideal > 0 else 0.0)
    return worth


def _gain(score):
    return 2 ** max(score, 0.0) - 1


def _discount(score, own, at):
    """Of the place of a score among those of its query; equal ones share theirs."""
    above, equal = sum(other > score for other in own), sum(other == score for other in own)
    places = range(above + 1, above + equal + 1)
    return sum(1 / math.log2(1 + place) for place in places if place <= at) / equal


def order_losses(scores, at, best, queries, places, smooth):
    """What the score of each document of `at`, alone, loses by the order of its query: one pair at a time."""

    def wrong(side, distance):
        return 1 / (1 + math.exp(max(-50.0, min(50.0, side * distance / smooth))))

    lost = []
    for score, i in zip(scores, at, strict=True):
        own = [j for j in range(len(best)) if queries[j] == queries[i]]
        others = [best[j] for j in own]
        total = 0.0
        for j in own:
            side = 1 if best[i] > best[j] else -1 if best[i] < best[j] else 0
            worth = abs(_gain(best[i]) - _gain(best[j]))
            worth *= abs(_discount(best[i], others, places) - _discount(best[j], others, places))
            total += worth * (wrong(side, score - best[j]) - wrong(side, best[i] - best[j]))
        ideal = sum(_gain(best[j]) * _discount(best[j], others, places) for j in own)
        lost.append(max(0.0, total / ideal) if ideal > 0 else 0.0)
    return lost
