/* interrupts.c, for Python and for the shell. */
void fl_put_off_interrupt(void);
/* The address of a number that is not 0 while an interrupt is deferred. */
const int *fl_interrupt_due(void);
/* Raises a deferred interrupt if this thread handles signals. */
void fl_raise_interrupt(void);
