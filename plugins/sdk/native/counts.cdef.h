/* What Python knows of handles: counts.c says what they are. Of an address that is 0 all functions say that it is nobody's. */
typedef struct fl_handle {
    uintptr_t table;          /* by which a loader calls */
    uint64_t number;          /* the younger, the larger */
    struct fl_handle *next;   /* of those that fl_take gave */
    uint16_t adapter, kind;
    int32_t references;       /* 0: it is lent, or nobody has it; or one of those below */
    uintptr_t words[4];       /* what C has to know of the object: Object.words */
} fl_handle;

enum { FL_FIXED = 0x7fffffff /* not counted */, FL_GONE = -1 /* by C; Python does not know it yet */, FL_BLOCK = 1024 /* handles */ };

uintptr_t fl_block(uintptr_t table);   /* the first of FL_BLOCK new handles, which lie one behind the other; 0: no memory */
void fl_begin(uintptr_t handle, uint64_t number, uint16_t adapter, uint16_t kind, int32_t references);
void fl_describe(uintptr_t handle, const uintptr_t *words);   /* all of them */
bool fl_end(uintptr_t handle);         /* whether it may be used again: false if fl_take will give it */
int32_t fl_references(uintptr_t handle);   /* FL_GONE, too, and 1 for what is not counted */
bool fl_own(uintptr_t handle);         /* the first reference to what was lent; false if it was not */
bool fl_retain(uintptr_t handle);      /* another reference; false if there was none */
int32_t fl_release(uintptr_t handle);  /* one reference less; how many there were */

/* Whether threads that do not have the GIL may wait for it, and what is called soon, in the main thread, after a handle has gone. */
void fl_counting(bool may_wait, void (*reap)(void));
fl_handle *fl_take(void);              /* those that have gone since it was asked, the first of them first */
const uintptr_t *fl_gone(void);        /* where a number is that is not 0 if there are such */
