/* Where a square that flies straight meets the bricks of a wall.
 *
 * Bricks are the cells of a grid. The square's leading edges cross one grid line after the other; at each crossing only
 * the cells that it enters are looked at, so that the work does not grow with the wall. */
#ifndef BREAKOUT_BRICKS_H
#define BREAKOUT_BRICKS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double x, y, vx, vy; /* upper left corner, pixels; pixels a frame */
} flight;

typedef struct {
    double top, width, height; /* of the wall; of a brick. The wall's left end is at x = 0 */
    int rows, cols;
    const uint32_t *standing; /* bit c of row r: that brick stands */
} grid;

/* What comes next on the ball's way. */
enum event_kind { NOTHING, BRICK_FACE, BRICK_SIDE, SIDE_WALL, BACK_WALL, PADDLE, FLOOR };

typedef struct {
    enum event_kind kind;
    double time; /* frames from now */
    int row, col;
} event;

static double smaller(double a, double b) {
    return a < b ? a : b;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static int floor_to_int(double v) {
    int truncated = (int)v;
    return truncated - (v < truncated);
}

static int ceil_to_int(double v) {
    int truncated = (int)v;
    return truncated + (v > truncated);
}

/* Of the bricks from .. to that stand in a line of n, the one that shares the longest part of its side with the square,
 * which covers low .. high of the line; -1 if there is none. */
static int widest_contact(uint32_t bricks, int n, int from, int to, double start, double length, double low,
                          double high) {
    int best = -1;
    double longest = -1;
    for (int i = from < 0 ? 0 : from; i <= to && i < n; i++) {
        double shared = smaller(high, start + (i + 1) * length) - larger(low, start + i * length);
        if ((bricks >> i & 1) && shared > longest) {
            longest = shared;
            best = i;
        }
    }
    return best;
}

/* The brick of a row that the square meets when its leading edge enters the row; -1 if none. The other leading edge is
 * in column `col`. */
static int hit_in_row(const grid *g, const flight *f, double size, double time, int row, int col) {
    if (row < 0 || row >= g->rows) {
        return -1;
    }
    double x = f->x + f->vx * time;
    int from = f->vx < 0 ? col : floor_to_int(x / g->width);
    int to = f->vx < 0 ? ceil_to_int((x + size) / g->width) - 1 : col;
    return widest_contact(g->standing[row], g->cols, from, to, 0, g->width, x, x + size);
}

/* The same for a column; the other leading edge is in row `row`. */
static int hit_in_col(const grid *g, const flight *f, double size, double time, int row, int col) {
    if (col < 0 || col >= g->cols) {
        return -1;
    }
    uint32_t column = 0;
    for (int i = 0; i < g->rows; i++) {
        column |= (g->standing[i] >> col & 1) << i;
    }
    double y = f->y + f->vy * time;
    int from = f->vy < 0 ? row : floor_to_int((y - g->top) / g->height);
    int to = f->vy < 0 ? ceil_to_int((y + size - g->top) / g->height) - 1 : row;
    return widest_contact(column, g->rows, from, to, g->top, g->height, y, y + size);
}

/* The first brick that the square meets within `limit` frames. A corner that is hit exactly counts as the side. */
static event find_brick(const grid *g, const flight *f, double size, double limit) {
    const bool is_up = f->vy < 0, is_left = f->vx < 0;
    int row = is_up ? floor_to_int((f->y - g->top) / g->height) : ceil_to_int((f->y + size - g->top) / g->height) - 1;
    int col = is_left ? floor_to_int(f->x / g->width) : ceil_to_int((f->x + size) / g->width) - 1;
    for (;;) {
        double to_row = INFINITY, to_col = INFINITY;
        if (is_up) {
            to_row = (g->top + row * g->height - f->y) / f->vy;
        } else if (f->vy > 0) {
            to_row = (g->top + (row + 1) * g->height - (f->y + size)) / f->vy;
        }
        if (is_left) {
            to_col = (col * g->width - f->x) / f->vx;
        } else if (f->vx > 0) {
            to_col = ((col + 1) * g->width - (f->x + size)) / f->vx;
        }
        double time = smaller(to_row, to_col);
        if (time >= limit) {
            return (event){NOTHING, limit, 0, 0};
        }
        if (to_row <= to_col) {
            row += is_up ? -1 : 1;
            int hit = hit_in_row(g, f, size, time, row, col);
            if (hit >= 0) {
                return (event){BRICK_FACE, time, row, hit};
            }
        } else {
            col += is_left ? -1 : 1;
            int hit = hit_in_col(g, f, size, time, row, col);
            if (hit >= 0) {
                return (event){BRICK_SIDE, time, hit, col};
            }
        }
    }
}

#endif
