/* Running a script: no call of the driver, no lock, no memory that is asked for. */
#include "direct.h"
#include "float_flags.h"

#include <string.h>

#define CLEARLY 90 /* percent of the time by the other function */
/* Of each thread: one that was late or kept from running leaves its pieces to others. */
#define PIECES 8
/* Passes with several threads that count: the first one has to bring memory into their caches. */
#define MEASURED_TOGETHER (FL_KNOWN - FL_MEASURED - 1)
/* Passes that lacked some: then those that sleep will do; then one thread runs everything. */
#define MOST_ASLEEP 16
#define MOST_MISSED 64

typedef void group_function(void **arguments, const fl_group_context *context, size_t x, size_t y,
                            size_t z);

static void launch(const fl_direct_step *s) {
    group_function *run = (group_function *)s->run;
    const fl_group_context *c = s->context;
    for (size_t z = 0; z < c->groups[2]; z++)
        for (size_t y = 0; y < c->groups[1]; y++)
            for (size_t x = 0; x < c->groups[0]; x++)
                run(s->arguments, c, x, y, z);
}

static void copy(const fl_direct_copy *c) {
    for (size_t z = 0; z < c->region[2]; z++)
        for (size_t y = 0; y < c->region[1]; y++)
            memcpy(c->to + z * c->to_slice + y * c->to_row,
                   c->from + z * c->from_slice + y * c->from_row, c->region[0]);
}

/* The pattern, then what is there already, twice as much each time. */
static void fill(const fl_direct_fill *f) {
    size_t done = f->pattern_size;
    memcpy(f->to, f->pattern, done);
    for (size_t next; done < f->size; done += next) {
        next = done < f->size - done ? done : f->size - done;
        memcpy(f->to + done, f->to, next);
    }
}

static void run(const fl_direct_step *s, uint32_t *flags) {
    switch (s->kind) {
    case FL_STEP_LAUNCH:
        if (s->flags != *flags)
            fl_set_float_flags(*flags = s->flags);
        if (s->is_single)
            ((group_function *)s->run)(s->arguments, s->context, 0, 0, 0);
        else
            launch(s);
        break;
    case FL_STEP_COPY:
        copy(s->copy);
        break;
    case FL_STEP_FILL:
        fill(s->fill);
        break;
    }
}

/* The groups of a launch from one to another. */
static void launch_some(const fl_direct_step *s, size_t first, size_t end) {
    group_function *run = (group_function *)s->run;
    const fl_group_context *c = s->context;
    size_t x = first % c->groups[0], y = first / c->groups[0] % c->groups[1],
           z = first / c->groups[0] / c->groups[1];
    for (size_t i = first; i < end; i++) {
        run(s->arguments, c, x, y, z);
        if (++x == c->groups[0]) {
            x = 0;
            if (++y == c->groups[1]) {
                y = 0;
                z++;
            }
        }
    }
}

static size_t groups_of(const fl_direct_step *s) {
    return s->kind == FL_STEP_LAUNCH
               ? s->context->groups[0] * s->context->groups[1] * s->context->groups[2]
               : 1;
}

/* One of several parts of a step. What is not a launch has no parts. */
static void run_part(const fl_direct_step *s, size_t part, size_t parts, uint32_t *flags) {
    size_t groups = groups_of(s), each = groups / parts, rest = groups % parts;
    size_t first = each * part + (part < rest ? part : rest), end = first + each + (part < rest);
    if (first == end)
        return;
    if (s->kind != FL_STEP_LAUNCH) {
        run(s, flags);
        return;
    }
    if (s->flags != *flags)
        fl_set_float_flags(*flags = s->flags);
    launch_some(s, first, end);
}

void fl_run_piece(const fl_work *work, uint32_t piece, uint32_t *flags) {
    uint64_t count = work->count, parts = work->pieces < count ? 1 : work->pieces / count;
    uint64_t first = count * parts * piece / work->pieces,
             end = count * parts * (piece + 1) / work->pieces;
    for (uint64_t i = first; i < end; i++) {
        uint64_t number = i / parts;
        run_part(&work->steps[work->order ? work->order[number] : number], i % parts, parts, flags);
    }
}

/* Step by step; if `others`, launches that have another function by that one. */
static void run_measured(fl_direct_step *s, const fl_direct_step *end, bool others,
                         uint32_t *flags) {
    for (int64_t before = fl_now(), after; s < end; s++, before = after) {
        fl_direct_step other = *s;
        uint32_t *ticks = others && s->other ? &s->shared_ticks : &s->ticks;
        if (ticks == &s->shared_ticks)
            fl_take_other(&other);
        run(&other, flags);
        after = fl_now();
        uint64_t took = (uint64_t)(after - before);
        if (took < *ticks)
            *ticks = (uint32_t)took;
    }
}

fl_level fl_level_at(const fl_script *script, uint32_t place) {
    fl_level level = {.can_share = script->limits.threads > 1};
    uint64_t groups = 0;
    bool ended = false;
    for (uint32_t i = place; !ended && i < script->step_count; i++) {
        const fl_direct_step *s = fl_step_at(script, i);
        level.count++;
        level.ticks += s->ticks;
        level.can_share &= !s->is_alone;
        groups += groups_of(s);
        ended = !script->order || s->ends;
    }
    level.can_share &= groups > 1;
    level.is_long = level.ticks >= script->limits.least && level.ticks < UINT32_MAX;
    return level;
}

bool fl_may_share(const fl_script *script, uint64_t most) {
    if (script->limits.threads < 2)
        return false;
    for (uint32_t place = 0; place < script->step_count;) {
        fl_level level = fl_level_at(script, place);
        if (level.can_share && level.is_long && level.ticks < most)
            return true;
        place += level.count;
    }
    return false;
}

static bool run_level_together(const fl_script *script, uint32_t place, uint32_t count,
                               uint64_t alone, fl_team *team, uint32_t threads, uint32_t *flags) {
    uint32_t wanted = PIECES * threads;
    fl_work work = {.steps = fl_steps(script),
                    .count = count,
                    .pieces = count < wanted ? (wanted + count - 1) / count * count : wanted,
                    .alone = alone};
    if (script->order)
        work.order = script->order + place;
    else
        work.steps += place;
    return fl_run_together(team, threads, &work, flags);
}

/* After a pass in which a level was run together. The least time of a short one counts: in later
 * passes it is not shared while the threads wait for each other (direct_threads.c). */
static void note_together(fl_direct_step *first, uint64_t alone, uint64_t took) {
    uint64_t sum = first->shared_ticks + took, all = MEASURED_TOGETHER * took;
    if (alone >= FL_SHORT)
        all = sum;
    else if (first->shared_ticks && first->shared_ticks < all)
        all = first->shared_ticks;
    first->shared_ticks = all < UINT32_MAX ? (uint32_t)all : UINT32_MAX;
}

/* Level by level. Those that are long are tried with so many threads. If that is 0, those are run
 * together of which it is known to be faster. */
static void run_levels(fl_script *script, fl_team *team, uint32_t tried, uint32_t *flags) {
    for (uint32_t place = 0; place < script->step_count;) {
        fl_direct_step *first = fl_step_at(script, place);
        if (!script->order && !tried && !first->together) {
            run(first, flags);
            place++;
            continue;
        }
        fl_level level = fl_level_at(script, place);
        uint32_t threads = !tried ? first->together : level.is_long ? tried : 0;
        uint64_t alone = tried ? UINT64_MAX : level.ticks;
        bool shares = level.can_share && threads;
        int64_t before = tried && shares ? fl_now() : 0;
        if (!shares ||
            !run_level_together(script, place, level.count, alone, team, threads, flags))
            for (uint32_t i = place; i < place + level.count; i++)
                run(fl_step_at(script, i), flags);
        else if (tried)
            note_together(first, level.ticks, (uint64_t)(fl_now() - before));
        place += level.count;
    }
}

/* Levels whose first launches have a function and a number of groups in common. Different kinds may
 * come to the same number. */
static uint32_t kind_of(const fl_direct_step *s) {
    return (uint32_t)((((uint64_t)(uintptr_t)s->run >> 4) + groups_of(s)) * 0x9e3779b97f4a7c15u >>
                      (64 - 6));
}

/* Launches of a kind are run by their other function from now on, if that was clearly faster.
 * PoCL's code for one local size takes three times as long for some kernels with a loop. */
static void take_faster(fl_direct_step *first, const fl_direct_step *end) {
    struct {
        uint64_t by_run, by_other;
    } kinds[FL_KINDS] = {{0, 0}};
    for (int decides = 0; decides < 2; decides++)
        for (fl_direct_step *s = first; s < end; s++) {
            if (s->kind != FL_STEP_LAUNCH || !s->other || s->shared_ticks == UINT32_MAX)
                continue;
            uint32_t kind = kind_of(s);
            if (!decides) {
                kinds[kind].by_run += s->ticks;
                kinds[kind].by_other += s->shared_ticks;
            } else if (kinds[kind].by_other < kinds[kind].by_run * CLEARLY / 100) {
                fl_take_other(s);
                s->ticks = s->shared_ticks;
            }
        }
}

/* After the passes with so many threads: which levels these run from now on. All of a kind are run
 * so, or none: one that was interrupted decides nothing alone. The mean time of long ones counts,
 * not the least: where a processor is not free, the threads wait for each other, and that has to be
 * seen.
 * The answer is whether more threads may be faster still. */
static bool choose(fl_script *script) {
    struct fl_trial *t = &script->trial;
    uint64_t alone[FL_KINDS] = {0}, together[FL_KINDS] = {0};
    bool takes[FL_KINDS], gains = false;
    for (int decides = 0; decides < 2; decides++) {
        for (uint32_t kind = 0; decides && kind < FL_KINDS; kind++) {
            uint64_t best = t->threads > 2 ? t->best[kind] : alone[kind];
            takes[kind] = together[kind] < best * script->limits.percent / 100;
            t->best[kind] = takes[kind] ? together[kind] : best;
            gains |= takes[kind];
        }
        for (uint32_t place = 0; place < script->step_count;) {
            fl_level level = fl_level_at(script, place);
            fl_direct_step *first = fl_step_at(script, place);
            uint32_t kind = kind_of(first);
            place += level.count;
            if (!level.can_share || !level.is_long)
                continue;
            if (!decides) {
                alone[kind] += level.ticks;
                together[kind] += first->shared_ticks / MEASURED_TOGETHER;
                continue;
            }
            if (takes[kind])
                first->together = (uint8_t)(script->shares = t->threads);
            if (alone[kind])
                first->shared_ticks =
                    (uint32_t)((double)level.ticks * (double)t->best[kind] / (double)alone[kind]);
        }
    }
    return gains;
}

/* A pass with so many threads as are tried now. For short levels all are awake, as they are in a
 * program that replays often. If other runs or programs keep one, there is none. */
static bool try_together(fl_script *script, uint32_t *flags) {
    struct fl_trial *t = &script->trial;
    fl_team *team = fl_take_threads(t->threads, script->limits.threads);
    bool has_all = fl_team_size(team) == t->threads;
    if (has_all && t->missed < MOST_ASLEEP && fl_may_share(script, FL_SHORT))
        has_all = fl_wake_threads(team);
    if (has_all)
        run_levels(script, team, t->threads, flags);
    fl_give_threads_back(team);
    return has_all;
}

/* A measured pass. Twice as many threads are tried while that is faster. */
static void measure(fl_script *script, uint32_t pass, uint32_t *flags) {
    fl_direct_step *first = fl_steps(script), *end = first + script->step_count;
    struct fl_trial *t = &script->trial;
    if (pass < FL_MEASURED) {
        run_measured(first, end, pass % 2, flags);
        if (pass + 1 == FL_MEASURED)
            take_faster(first, end);
        bool ends = pass + 1 == FL_MEASURED && !fl_may_share(script, UINT64_MAX);
        atomic_store(&script->passes, ends ? FL_KNOWN : pass + 1);
        return;
    }
    if (!try_together(script, flags)) {
        for (const fl_direct_step *s = first; s < end; s++)
            run(s, flags);
        if (++t->missed == MOST_MISSED) {
            for (fl_direct_step *s = first; s < end; s++)
                s->shared_ticks = UINT32_MAX;
            choose(script);
            atomic_store(&script->passes, FL_KNOWN);
        }
        return;
    }
    for (fl_direct_step *s = first; s < end && pass == FL_MEASURED;
         s++) /* the threads have the memory in their caches */
        s->shared_ticks = 0;
    if (pass + 1 == FL_KNOWN && choose(script) && t->threads < script->limits.threads) {
        uint32_t most = script->limits.threads;
        t->threads = 2 * t->threads < most ? 2 * t->threads : most;
        pass = FL_MEASURED - 1;
    }
    atomic_store(&script->passes, pass + 1);
}

/* Work-group functions of PoCL 7.0 and later say in the context that they failed. Those of earlier
 * versions never write there. */
static void look_at(fl_script *script, fl_group_context *context) {
    if (context->failed) {
        context->failed = 0;
        atomic_store(&script->failed, 1);
    }
}

static void look_for_failures(fl_script *script) {
    const fl_direct_step *end = fl_steps(script) + script->step_count;
    for (uint32_t i = 0; i < script->common_count; i++)
        look_at(script, &fl_contexts(script)[i]);
    if (script->common_count == FL_COMMON) /* steps may have their own */
        for (const fl_direct_step *s = fl_steps(script); s < end; s++)
            if (s->kind == FL_STEP_LAUNCH)
                look_at(script, s->context);
}

/* What the places of cells hold in a pass. */
static void store(fl_script *script, const fl_direct_series *series, uint32_t turn) {
    for (uint32_t i = 0; series && i < series->column_count; i++) {
        const struct fl_direct_column *c = &series->columns[i];
        memcpy(script->block + script->cells_at + c->at, c->values + turn * c->size, c->size);
    }
}

/* A run may have written the word: it was a call that nothing is known of. */
static bool stops(fl_stop *stop) {
    uint32_t word;
    if (!stop)
        return false;
    memcpy(&word, stop->word, sizeof word);
    return stop->stopped = (word != 0) == stop->wanted;
}

uint32_t fl_run_script(fl_script *script, uint32_t times, const unsigned char *values,
                      const fl_direct_series *series, fl_stop *stop) {
    uint32_t before = fl_float_flags(), flags = before;
    uint32_t turn = 0, pass;
    bool stopped = false;
    fl_direct_step *const first = fl_steps(script), *const end = first + script->step_count;
    if (script->cells_size)
        memcpy(script->block + script->cells_at, values, script->cells_size);
    for (; turn < times && !stopped && (pass = atomic_load(&script->passes)) < FL_KNOWN; turn++) {
        store(script, series, turn);
        measure(script, pass, &flags);
        stopped = stops(stop);
    }
    bool shares = turn < times && !stopped && script->shares;
    fl_team *team = shares ? fl_take_threads(script->shares, script->limits.threads) : NULL;
    for (; turn < times && !stopped; turn++) {
        store(script, series, turn);
        if (team)
            run_levels(script, team, 0, &flags);
        else
            for (const fl_direct_step *s = first; s < end; s++)
                run(s, &flags);
        stopped = stops(stop);
    }
    if (shares)
        fl_give_threads_back(team);
    fl_set_float_flags(before);
    look_for_failures(script);
    return turn;
}
