/* Handles, as Python knows them; see counts.c. All functions treat an address of 0 as a handle
 * without an object. */
typedef struct fl_handle {
    uintptr_t table;          /* by which a loader calls */
    uint64_t number;          /* younger handles have larger ones */
    struct fl_handle *next;   /* in the list that fl_take returned */
    uint16_t adapter;
    uint8_t kind;
    bool of_c;                /* C made it, and Python does not know its object */
    int32_t references;       /* 0: lent or unused; or a constant below */
    uintptr_t words[4];       /* what C knows of the object: Object.describe_to_c */
} fl_handle;

enum {
    FL_FIXED = 0x7fffffff,   /* not counted */
    FL_GONE = -1,            /* released in C, and Python does not know it yet */
    FL_BLOCK = 1024,         /* handles of a block */
};

/* The first of FL_BLOCK new handles, one behind the other. 0: no memory. */
uintptr_t fl_block(uintptr_t table);
void fl_begin(uintptr_t handle, uint64_t number, uint16_t adapter, uint16_t kind,
              int32_t references);
void fl_describe(uintptr_t handle, const uintptr_t *words);   /* all four */
/* Returns whether the handle may be used again: false if fl_take will return it. */
bool fl_end(uintptr_t handle);
/* The references, or FL_GONE. 1 for what is not counted. */
int32_t fl_references(uintptr_t handle);
/* Adds the first reference to a lent handle. False if it was not lent. */
bool fl_own(uintptr_t handle);
/* Adds another reference. False if there was none. */
bool fl_retain(uintptr_t handle);
/* Removes a reference, and returns how many there were. */
int32_t fl_release(uintptr_t handle);

/* Sets whether threads without the GIL may wait for it. Also sets what the main thread calls soon
 * after the last release of a handle in C. */
void fl_counting(bool may_wait, void (*reap)(void));
/* The handles whose last reference was released since the last call, in order. */
fl_handle *fl_take(void);
/* The address of a number that is not 0 if fl_take would return any. */
const uintptr_t *fl_gone(void);

/* Allows C to make handles of an adapter. `table` is what they begin with. */
void fl_make_handles(uint32_t adapter, uintptr_t table);
/* Adds a reference to a handle that C has made, and returns its numbers. NULL: there is none. */
const uintptr_t *fl_hold_made(uint32_t adapter, uintptr_t handle, uint16_t kind);
/* Removes that reference. It ends if it was the last one. */
void fl_let_go_made(uintptr_t handle);
/* Python has an object for it from now on. The caller holds it. */
void fl_adopt(uintptr_t handle);
/* The next handle that C has made whose third number is `word`, or any if that is 0. `after` is 0
 * at first. */
uintptr_t fl_find_made(uint32_t adapter, uint16_t kind, uintptr_t word, uintptr_t *after);
