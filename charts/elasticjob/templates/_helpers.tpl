{{/* Name of the release's objects: the release's name, with the chart's where it lacks it. */}}
{{- define "elasticjob.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "elasticjob.operator" -}}
{{ include "elasticjob.fullname" . }}-operator
{{- end -}}

{{- define "elasticjob.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "elasticjob.operator" .) }}
{{- end -}}

{{/* Selector labels; they never change, because a Deployment's selector cannot. */}}
{{- define "elasticjob.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "elasticjob.labels" -}}
{{ include "elasticjob.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Image reference: (list . .Values.image.operator) */}}
{{- define "elasticjob.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{/* Who the operator's roles are bound to. */}}
{{- define "elasticjob.subjects" -}}
- kind: ServiceAccount
  name: {{ include "elasticjob.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* What an uninstall leaves, for NOTES.txt and kept.yaml. */}}
{{- define "elasticjob.kept" -}}
`helm uninstall` removes the operator and leaves the CRDs and all ElasticJobs. Running jobs train on, but without an
operator nobody replaces a lost worker, scales a job or ends it. Installing the chart again takes them up again.
To remove them as well, with their pods:

    kubectl delete elasticjobs --all --all-namespaces
    kubectl delete crd elasticjobs.elasticjob.io elasticworkers.elasticjob.io
    kubectl delete configmap --namespace {{ .Release.Namespace }} {{ include "elasticjob.fullname" . }}-crds-and-jobs-are-kept
{{- end -}}

{{/* Not Chart.yaml's kubeVersion: without a cluster, a Helm that was built from source calls itself Kubernetes 1.20
and would refuse to render. */}}
{{- define "elasticjob.checkCluster" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if and (semverCompare "<1.29.0-0" $version) (lookup "v1" "Namespace" "" "default") -}}
{{- fail (printf "ElasticJob needs Kubernetes 1.29 or newer, for native sidecar containers; this cluster is %s" $version) -}}
{{- end -}}
{{- if and .Values.admissionPolicy.enabled (semverCompare "<1.30.0-0" $version) (lookup "v1" "Namespace" "" "default") -}}
{{- fail (printf "this cluster is %s and knows no ValidatingAdmissionPolicy; set admissionPolicy.enabled=false, and read in values.yaml what then is open" $version) -}}
{{- end -}}
{{- end -}}
