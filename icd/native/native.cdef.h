/* What Python calls: read by the C compiler and by cffi alike, so there is no preprocessor directive and no include in here. */

/* tables.c */
extern void *const fl_stubs[150];
void **fl_new_table(void);
size_t fl_safe_read(const void *address, void *into, size_t size);
