/* Running an image: no call of the driver, no lock, no memory that is asked for. */
#include "direct.h"

#include <string.h>
#include <time.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#else   /* the engine is off: fl_direct_check refuses everything */
static unsigned _mm_getcsr(void) { return 0; }
static void _mm_setcsr(unsigned flags) { (void)flags; }
#endif

typedef void group_function(void **arguments, const fl_group_context *context, size_t x, size_t y, size_t z);

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
            memcpy(c->to + z * c->to_slice + y * c->to_row, c->from + z * c->from_slice + y * c->from_row, c->region[0]);
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

static void run(const fl_direct_step *s, unsigned *flags) {
    switch (s->kind) {
    case FL_STEP_LAUNCH:
        if (s->flags != *flags)
            _mm_setcsr(*flags = s->flags);
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

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void run_measured(fl_direct_step *s, const fl_direct_step *end, unsigned *flags) {
    for (uint64_t before = now(), after; s < end; s++, before = after) {
        run(s, flags);
        after = now();
        uint64_t took = after - before;
        if (took < s->ticks)
            s->ticks = (uint32_t)took;
    }
}

static void look_for_failures(fl_image *image) {
    const fl_direct_step *end = fl_steps(image) + image->step_count;
    for (const fl_direct_step *s = fl_steps(image); s < end; s++)
        if (s->kind == FL_STEP_LAUNCH && s->context->failed)
            atomic_store(&image->failed, 1);
}

/* What the places of cells hold in a pass. */
static void store(fl_image *image, const fl_direct_series *series, uint32_t turn) {
    for (uint32_t i = 0; series && i < series->column_count; i++) {
        const struct fl_direct_column *c = &series->columns[i];
        memcpy(image->block + image->cells_at + c->at, c->values + turn * c->size, c->size);
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

uint32_t fl_run_image(fl_image *image, uint32_t times, const unsigned char *values, const fl_direct_series *series, fl_stop *stop) {
    unsigned before = _mm_getcsr(), flags = before;
    uint32_t turn = 0;
    bool stopped = false;
    fl_direct_step *const first = fl_steps(image), *const end = first + image->step_count;
    if (image->cells_size)
        memcpy(image->block + image->cells_at, values, image->cells_size);
    for (; turn < times && !stopped && atomic_load(&image->passes) < FL_MEASURED; turn++) {
        store(image, series, turn);
        run_measured(first, end, &flags);
        atomic_fetch_add(&image->passes, 1);
        stopped = stops(stop);
    }
    for (; turn < times && !stopped; turn++) {
        store(image, series, turn);
        for (const fl_direct_step *s = first; s < end; s++)
            run(s, &flags);
        stopped = stops(stop);
    }
    _mm_setcsr(before);
    if (image->watched)
        look_for_failures(image);
    return turn;
}
