/* What an environment says of its rows for given parameters: asked for, checked, and measured. */
#ifndef OC_SPEC_H
#define OC_SPEC_H

#include "table.h"

/* Ask the environment for the spec of a set of parameters, fill in defaults and resolve params->max_steps.
 * Returns 0, or -1 with the reason in message: the environment refuses the parameters, or its spec is wrong. */
int oc_resolve(const oc_env *env, void *params, oc_spec *spec, oc_message *message);

/* The bounds of each element of an observation: spec's, refined by the environment. */
void oc_observation_bounds(const oc_env *env, const void *params, const oc_spec *spec, double *low, double *high);

/* Bytes of one element of an observation; elements of one observation, one action, one action mask. */
int64_t oc_item_bytes(int dtype);
int64_t oc_observation_size(const oc_spec *spec);
int64_t oc_action_size(const oc_spec *spec);
int64_t oc_action_mask_size(const oc_env *env, const oc_spec *spec);

#endif
