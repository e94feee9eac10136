/* What Python is given of a shell: shell.c says what it is. */
typedef struct fl_shell {
    uint32_t version;           /* FL_SHELL_VERSION: of all that is here and in the entry points; it stays the first */
    uint32_t number;            /* the adapter's, given back to every body */
    uint32_t entry_count;
    void **bodies;              /* by entry point; NULL: not implemented */
    const char *const *names;   /* of the entry points */
    void **direct;              /* of PI's ones that count references: the functions of Unified Runtime that do, and NULL for all others */
    const int32_t *codes;       /* what their codes become: as many as there are, and then that of all others */
    uint32_t code_count;
    void *const *table;         /* ur_dditable_t: the first word of every handle */
    const char *config;         /* lines `name=value` */
    const int *interrupt_due;   /* where a number is that is not 0 while Ctrl-C waits for the end of an entry point */
    void (*interrupt)(void);    /* raises it now */
    void (*close)(void);        /* from now on nothing reaches Python any more */
    void (*reset)(void);        /* the same, until it is asked for again */
    void (*at_exit)(void (*teardown)(uint32_t number));   /* call it before the drivers' own destructors, where Python does not */
} fl_shell;
