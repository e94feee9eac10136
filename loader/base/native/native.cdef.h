/* --- memory.c --- */
size_t fl_safe_read(const void *address, void *into, size_t size);

/* --- generated: thunks_ur.c, thunks_pi.c --- */
const fl_thunks *fl_ur_thunks(void);
const fl_thunks *fl_pi_thunks(void);

/* --- layers.c --- */
/* A complete table in which every slot answers that it is not supported; NULL if there is no memory. It is never freed: whoever was
 * handed a table may keep it for as long as the process lives. */
void **fl_new_table_of(const fl_thunks *thunks);
/* A layer in front of `next` (NULL: nothing is behind it); NULL when all layers of the API are taken. It forwards everything. */
fl_layer *fl_new_layer(const fl_thunks *thunks, void *const *next, uint64_t orphan);
/* Put a layer that forwards in front of another table. Whoever kept a function of it calls that table from now on. */
void fl_turn_layer(fl_layer *layer, void *const *next, uint64_t orphan);
void *const *fl_layer_table(const fl_layer *layer);
/* Handlers are set and taken away while calls are under way: a call that has begun may then see only one of the two. */
void fl_set_handlers(fl_layer *layer, int (*before)(fl_call *), void (*after)(fl_call *));

/* --- log.c: calls written down in memory --- */
typedef struct fl_log fl_log;
/* `limit` in bytes; what comes later is counted and lost. */
fl_log *fl_new_log(size_t limit);
/* From now on the calls through `layer` are written into `log`; NULL ends it. */
void fl_log_calls(fl_layer *layer, fl_log *log);
/* Copies what was logged from byte `from` on; returns how many bytes. What is there up to fl_log_size is whole records. */
size_t fl_log_copy(fl_log *log, size_t from, void *into, size_t size);
size_t fl_log_size(fl_log *log);
uint64_t fl_log_lost(fl_log *log);
/* Gives up what was logged. The log itself stays: a call that began while it was on may still come to its end. */
void fl_clear_log(fl_log *log);
/* What the arguments of a call lead to now, as the pieces of a record: returns how many words, FL_LOOK at most. */
enum { FL_LOOK = 544 };
size_t fl_look(const fl_layer *layer, uint32_t function, const uint64_t *arguments, uint32_t count, uint64_t *into);
