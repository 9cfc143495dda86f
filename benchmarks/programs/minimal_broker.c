/*
 * A minimal broker for produce requests, for `benchmarks.minimal_broker`.
 *
 *   minimal_broker FILE FRAME_BYTES BATCH_POSITION RESPONSE each|together
 *
 * FILE receives the batches. All requests have FRAME_BYTES bytes, their size included, and hold one
 * record batch at BATCH_POSITION, whose length the batch itself states.
 * RESPONSE is a file with the bytes of the response, their size included.
 *
 * The program listens on a free port of 127.0.0.1, prints the port, and serves one connection until
 * the client closes it. It waits with epoll and receives. For each complete request it checks the
 * batch's CRC-32C, appends the batch with one pwrite, and sends the fixed response with the request's
 * correlation id. With `each` every response is a separate send. With `together` one send has the
 * responses to all requests of one receive.
 *
 * The listening socket has the options that Odradek sets: TCP_NODELAY, and Reno for peers on this
 * machine.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

enum {
	SIZE_BYTES = 4,
	CORRELATION_POSITION = 8, /* after the size, the API key and the version */
	RESPONSE_CORRELATION_POSITION = 4,
	BATCH_LENGTH_POSITION = 8, /* after the base offset */
	BATCH_LENGTH_FROM = 12,    /* the length counts from here */
	BATCH_CRC_POSITION = 17,
	BATCH_CRC_FROM = 21, /* the CRC covers the batch from its attributes on */
	BUFFER_BYTES = 1 << 20,
	RESPONSE_BYTES_MAX = 1 << 10,
	OUTPUT_BYTES = 1 << 20,
};

static void fail(const char *what)
{
	fprintf(stderr, "minimal_broker: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t read_u32(const unsigned char *at)
{
	uint32_t value;
	memcpy(&value, at, sizeof value);
	return ntohl(value);
}

#ifdef __SSE4_2__
static uint32_t crc32c(const unsigned char *at, size_t left)
{
	uint64_t crc = 0xffffffff;
	for (; left >= 8; at += 8, left -= 8) {
		uint64_t word;
		memcpy(&word, at, sizeof word);
		crc = _mm_crc32_u64(crc, word);
	}
	for (; left > 0; at++, left--)
		crc = _mm_crc32_u8((uint32_t)crc, *at);
	return ~(uint32_t)crc;
}
#else
static uint32_t crc_table[8][256];

static void fill_table(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
		crc_table[0][byte] = crc;
	}
	for (int slice = 1; slice < 8; slice++)
		for (int byte = 0; byte < 256; byte++) {
			uint32_t crc = crc_table[slice - 1][byte];
			crc_table[slice][byte] = (crc >> 8) ^ crc_table[0][crc & 0xff];
		}
}

static uint32_t crc32c(const unsigned char *at, size_t left)
{
	uint32_t crc = 0xffffffff;
	if (crc_table[0][1] == 0)
		fill_table();
	for (; left >= 8; at += 8, left -= 8) {
		uint32_t low = crc ^ (at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24);
		crc = crc_table[7][low & 0xff] ^ crc_table[6][low >> 8 & 0xff] ^
		      crc_table[5][low >> 16 & 0xff] ^ crc_table[4][low >> 24] ^
		      crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^
		      crc_table[0][at[7]];
	}
	for (; left > 0; at++, left--)
		crc = (crc >> 8) ^ crc_table[0][(crc ^ *at) & 0xff];
	return ~crc;
}
#endif

static int listen_on_loopback(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof address;
	int yes = 1;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0)
		fail("socket");
	setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0)
		fail("bind");
	if (listen(listener, 1) < 0)
		fail("listen");
	getsockname(listener, (struct sockaddr *)&address, &size);
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	return listener;
}

static void send_all(int peer, const unsigned char *at, size_t left)
{
	while (left > 0) {
		ssize_t sent = send(peer, at, left, MSG_NOSIGNAL);
		if (sent < 0)
			fail("send");
		at += sent;
		left -= (size_t)sent;
	}
}

/* Execute all complete requests of `input` and return the bytes that they took. */
static size_t execute(const unsigned char *input, size_t filled, size_t frame_bytes,
                      size_t batch_position, int file, off_t *end, const unsigned char *response,
                      size_t response_bytes, int peer, int is_each, unsigned char *output,
                      size_t *output_bytes)
{
	size_t at = 0;
	while (filled - at >= frame_bytes) {
		const unsigned char *frame = input + at;
		const unsigned char *batch = frame + batch_position;
		size_t batch_bytes = BATCH_LENGTH_FROM + read_u32(batch + BATCH_LENGTH_POSITION);
		if (read_u32(frame) + SIZE_BYTES != frame_bytes ||
		    batch_position + batch_bytes > frame_bytes) {
			fprintf(stderr, "minimal_broker: a request has another size\n");
			exit(1);
		}
		if (crc32c(batch + BATCH_CRC_FROM, batch_bytes - BATCH_CRC_FROM) !=
		    read_u32(batch + BATCH_CRC_POSITION)) {
			fprintf(stderr, "minimal_broker: the CRC-32C does not match\n");
			exit(1);
		}
		if (pwrite(file, batch, batch_bytes, *end) != (ssize_t)batch_bytes)
			fail("pwrite");
		*end += (off_t)batch_bytes;
		if (*output_bytes + response_bytes > OUTPUT_BYTES) {
			fprintf(stderr, "minimal_broker: too many requests in one receive\n");
			exit(1);
		}
		memcpy(output + *output_bytes, response, response_bytes);
		memcpy(output + *output_bytes + RESPONSE_CORRELATION_POSITION,
		       frame + CORRELATION_POSITION, 4);
		*output_bytes += response_bytes;
		at += frame_bytes;
		if (is_each) {
			send_all(peer, output, *output_bytes);
			*output_bytes = 0;
		}
	}
	return at;
}

int main(int count, char **words)
{
	static unsigned char input[BUFFER_BYTES], output[OUTPUT_BYTES], response[RESPONSE_BYTES_MAX];
	int is_each = count == 6 && strcmp(words[5], "each") == 0;
	if (count != 6 || (!is_each && strcmp(words[5], "together") != 0)) {
		fprintf(stderr, "usage: minimal_broker FILE FRAME_BYTES BATCH_POSITION RESPONSE "
		                "each|together\n");
		return 2;
	}
	size_t frame_bytes = strtoul(words[2], NULL, 10);
	size_t batch_position = strtoul(words[3], NULL, 10);
	if (frame_bytes > BUFFER_BYTES || frame_bytes < batch_position + BATCH_CRC_FROM) {
		fprintf(stderr, "minimal_broker: no batch fits into %zu bytes\n", frame_bytes);
		return 2;
	}
	int file = open(words[1], O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
	int known = open(words[4], O_RDONLY | O_CLOEXEC);
	if (file < 0 || known < 0)
		fail("open");
	ssize_t response_bytes = read(known, response, sizeof response);
	if (response_bytes < 8)
		fail("the response is too short");
	int listener = listen_on_loopback();
	int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (peer < 0)
		fail("accept");
	int poll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = peer};
	if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, peer, &event) < 0)
		fail("epoll");
	size_t filled = 0;
	off_t end = 0;
	for (;;) {
		if (epoll_wait(poll, &event, 1, -1) < 0) {
			if (errno == EINTR)
				continue;
			fail("epoll_wait");
		}
		ssize_t received = recv(peer, input + filled, sizeof input - filled, 0);
		if (received == 0)
			return 0;
		if (received < 0) {
			if (errno == EAGAIN || errno == EINTR)
				continue;
			fail("recv");
		}
		filled += (size_t)received;
		size_t output_bytes = 0;
		size_t done = execute(input, filled, frame_bytes, batch_position, file, &end, response,
		                      (size_t)response_bytes, peer, is_each, output, &output_bytes);
		if (output_bytes > 0)
			send_all(peer, output, output_bytes);
		if (done > 0) {
			filled -= done;
			memmove(input, input + done, filled);
		}
	}
}
