/* Has a function of that name which is not the driver's. */
int cuMemAlloc_v2(void *to, unsigned long bytes) {
    (void)to, (void)bytes;
    return 77;
}
