/* A shell (shell.c), as Python knows it. */
typedef struct fl_shell {
    uint32_t version;           /* FL_SHELL_VERSION, of this struct and the entries; first */
    uint32_t number;            /* the adapter's number, which every body gets */
    uint32_t entry_count;
    void **bodies;              /* by entry point; NULL: not implemented */
    const char *const *names;   /* of the entry points */
    void **direct;              /* the adapter's functions for those of PI that count references */
    const int32_t *codes;       /* the codes of PI for theirs, then the code for others */
    uint32_t code_count;
    void *const *table;         /* ur_dditable_t, with whose address every handle begins */
    const char *config;         /* lines `name=value` */
    const int *interrupt_due;   /* the address of a number that is not 0 while Ctrl-C is deferred */
    void (*interrupt)(void);    /* raises it now */
    void (*close)(void);        /* from now on nothing reaches Python */
    void (*reset)(void);        /* the same, until the shell is used again */
    /* Registers what runs before the drivers end. */
    void (*at_exit)(void (*teardown)(uint32_t number));
} fl_shell;
