/* Debian 12's MPICH 4.0.2 hangs now and then in MPI_Finalize: over UCX 1.13's TCP a rank waits for the acknowledgement of a
 * peer that has stopped making progress (plain mpiexec shows it, too: 5 of 8 runs with 6 ranks and UCX_TLS=tcp,self). A process
 * that ends needs no orderly disconnect. Loaded into every program of the image by /etc/ld.so.preload. */
void *ucp_disconnect_nb(void *endpoint)
{
    (void)endpoint;
    return 0; /* UCS_OK: done at once */
}
