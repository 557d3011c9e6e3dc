/*
 * A genuine responder: the kernel's RC READs of plain memory, with libibverbs. It speaks as much of the service's
 * protocol as client.c's `pair` needs, to one client after the other:
 *
 *     responder PORT
 *
 *     rdma QPN PSN GID MTU          a queue pair: RDMA QPN PSN GID
 *     ms KEY LENGTH g, and data     what a READ gets: HD g<stag>,<length>
 */
#include <arpa/inet.h>
#include <unistd.h>

#include "verbs.h"

enum { BYTES_MAX = 65536 };
/* Where a READ of the memory begins: a stag's lower half is the upper one of the address. */
static const uint64_t begin = (uint64_t)0x5eed << 32;

struct responder {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	/* Its place in a page is that of `begin`. */
	char memory[BYTES_MAX] __attribute__((aligned(4096)));
};

static void answer(struct responder *r, FILE *in, FILE *out, union ibv_gid own)
{
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &init);
	char line[256], text[64];
	struct far_end far;
	size_t len;
	int mtu;
	if (!qp)
		die("no queue pair");
	while (fgets(line, sizeof line, in)) {
		if (sscanf(line, "rdma %u %u %63s %d", &far.qpn, &far.psn, text, &mtu) == 4 &&
		    inet_pton(AF_INET6, text, far.gid.raw) == 1) {
			raise_pair(qp, gid_index(r->device, own), far, 0, mtu, 6);
			inet_ntop(AF_INET6, own.raw, text, sizeof text);
			fprintf(out, "RDMA %u 0 %s\r\n", qp->qp_num, text);
		} else if (sscanf(line, "ms %63s %zu g", text, &len) == 2 && len <= BYTES_MAX &&
			   fread(r->memory, 1, len, in) == len && fgets(line, sizeof line, in)) {
			uint64_t stag = (uint64_t)r->mr->rkey << 32 | begin >> 32;
			fprintf(out, "HD g%016lx,%zu\r\n", stag, len);
		} else {
			break;
		}
		fflush(out);
	}
	ibv_destroy_qp(qp);
}

int main(int argc, char **argv)
{
	static struct responder r;
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(argc > 1 ? atoi(argv[1]) : 11211) };
	int listener = socket(AF_INET6, SOCK_STREAM, 0), fd;
	r.device = open_device();
	r.pd = ibv_alloc_pd(r.device);
	r.cq = ibv_create_cq(r.device, READS_MAX, NULL, NULL, 0);
	r.mr = ibv_reg_mr_iova(r.pd, r.memory, sizeof r.memory, begin, IBV_ACCESS_REMOTE_READ);
	if (!r.pd || !r.cq || !r.mr)
		die("no memory region");
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 1))
		die("listen");
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		struct sockaddr_storage own;
		socklen_t len = sizeof own;
		getsockname(fd, (struct sockaddr *)&own, &len);
		FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
		answer(&r, in, out, gid_of(&own));
		fclose(in);
		fclose(out);
	}
	return 0;
}
