/* What Python and the shell are given of interrupts.c. */
void fl_put_off_interrupt(void);
const int *fl_interrupt_due(void);   /* where a number is that is not 0 while an interrupt is put off */
void fl_raise_interrupt(void);       /* raises it, if one is put off and this thread handles signals */
void fl_interrupt_later(void);       /* raises it in a millisecond */
