"""TorchMetrics' public names, for our modules that work without TorchMetrics."""

from __future__ import annotations

VERSION = "1.9"  # of the TorchMetrics whose ``__all__`` these are

PACKAGES = frozenset(  # submodules of torchmetrics, including those of torchmetrics.functional
    """
    aggregation audio classification clustering collections detection functional image metric
    multimodal nominal regression retrieval segmentation shape text utilities video wrappers
    """.split()  # noqa: SIM905
)


def has(module: str, name: str) -> bool:
    """Whether TorchMetrics has the name in the module that ``module`` replaces."""
    return name in NAMES.get(module, ()) or (
        module in ("syncfree", "syncfree.functional") and name in PACKAGES
    )


NAMES = {
    module: frozenset(names.split())
    for module, names in {
        "syncfree": """
            AUROC Accuracy AveragePrecision BLEUScore BootStrapper CHRFScore CalibrationError
            CatMetric CharErrorRate ClasswiseWrapper CohenKappa ConcordanceCorrCoef ConfusionMatrix
            CosineSimilarity CramersV CriticalSuccessIndex ErrorRelativeGlobalDimensionlessSynthesis
            ExactMatch ExplainedVariance ExtendedEditDistance F1Score FBetaScore FleissKappa
            HammingDistance HingeLoss JaccardIndex KLDivergence KendallRankCorrCoef LogAUC
            LogCoshError MatchErrorRate MatthewsCorrCoef MaxMetric MeanAbsoluteError
            MeanAbsolutePercentageError MeanMetric MeanSquaredError MeanSquaredLogError Metric
            MetricCollection MetricTracker MinMaxMetric MinMetric MinkowskiDistance
            ModifiedPanopticQuality MultiScaleStructuralSimilarityIndexMeasure MultioutputWrapper
            MultitaskWrapper NegativePredictiveValue NormalizedRootMeanSquaredError PanopticQuality
            PeakSignalNoiseRatio PearsonCorrCoef PearsonsContingencyCoefficient
            PermutationInvariantTraining Perplexity Precision PrecisionAtFixedRecall
            PrecisionRecallCurve R2Score ROC Recall RecallAtFixedPrecision
            RelativeAverageSpectralError RelativeSquaredError RetrievalFallOut RetrievalHitRate
            RetrievalMAP RetrievalMRR RetrievalNormalizedDCG RetrievalPrecision
            RetrievalPrecisionRecallCurve RetrievalRPrecision RetrievalRecall
            RetrievalRecallAtFixedPrecision RootMeanSquaredErrorUsingSlidingWindow RunningMean
            RunningSum SQuAD SacreBLEUScore ScaleInvariantSignalDistortionRatio
            ScaleInvariantSignalNoiseRatio SensitivityAtSpecificity SignalDistortionRatio
            SignalNoiseRatio SpearmanCorrCoef Specificity SpecificityAtSensitivity
            SpectralAngleMapper SpectralDistortionIndex StatScores StructuralSimilarityIndexMeasure
            SumMetric SymmetricMeanAbsolutePercentageError TheilsU TotalVariation
            TranslationEditRate TschuprowsT TweedieDevianceScore UniversalImageQualityIndex
            WeightedMeanAbsolutePercentageError WordErrorRate WordInfoLost WordInfoPreserved
            functional
        """,
        "syncfree.functional": """
            accuracy auroc average_precision binary_eer bleu_score calibration_error char_error_rate
            chrf_score cohen_kappa concordance_corrcoef confusion_matrix cosine_similarity cramers_v
            cramers_v_matrix critical_success_index eer
            error_relative_global_dimensionless_synthesis exact_match explained_variance
            extended_edit_distance f1_score fbeta_score fleiss_kappa hamming_distance hinge_loss
            image_gradients jaccard_index kendall_rank_corrcoef kl_divergence lip_vertex_error
            log_cosh_error logauc match_error_rate matthews_corrcoef mean_absolute_error
            mean_absolute_percentage_error mean_squared_error mean_squared_log_error
            minkowski_distance multiclass_eer multilabel_eer
            multiscale_structural_similarity_index_measure negative_predictive_value
            normalized_root_mean_squared_error pairwise_cosine_similarity
            pairwise_euclidean_distance pairwise_linear_similarity pairwise_manhattan_distance
            pairwise_minkowski_distance panoptic_quality peak_signal_noise_ratio pearson_corrcoef
            pearsons_contingency_coefficient pearsons_contingency_coefficient_matrix
            permutation_invariant_training perplexity pit_permutate precision
            precision_at_fixed_recall precision_recall_curve r2_score recall
            recall_at_fixed_precision relative_average_spectral_error relative_squared_error
            retrieval_average_precision retrieval_fall_out retrieval_hit_rate
            retrieval_normalized_dcg retrieval_precision retrieval_precision_recall_curve
            retrieval_r_precision retrieval_recall retrieval_reciprocal_rank roc
            root_mean_squared_error_using_sliding_window rouge_score sacre_bleu_score
            scale_invariant_signal_distortion_ratio scale_invariant_signal_noise_ratio
            sensitivity_at_specificity signal_distortion_ratio signal_noise_ratio spearman_corrcoef
            specificity specificity_at_sensitivity spectral_angle_mapper spectral_distortion_index
            squad stat_scores structural_similarity_index_measure
            symmetric_mean_absolute_percentage_error theils_u theils_u_matrix total_variation
            translation_edit_rate tschuprows_t tschuprows_t_matrix tweedie_deviance_score
            universal_image_quality_index weighted_mean_absolute_percentage_error word_error_rate
            word_information_lost word_information_preserved
        """,
        "syncfree.functional.classification": """
            accuracy auroc average_precision binary_accuracy binary_auroc binary_average_precision
            binary_calibration_error binary_cohen_kappa binary_confusion_matrix binary_eer
            binary_f1_score binary_fairness binary_fbeta_score binary_groups_stat_rates
            binary_hamming_distance binary_hinge_loss binary_jaccard_index binary_logauc
            binary_matthews_corrcoef binary_negative_predictive_value binary_precision
            binary_precision_at_fixed_recall binary_precision_recall_curve binary_recall
            binary_recall_at_fixed_precision binary_roc binary_sensitivity_at_specificity
            binary_specificity binary_specificity_at_sensitivity binary_stat_scores
            calibration_error cohen_kappa confusion_matrix demographic_parity eer equal_opportunity
            exact_match f1_score fbeta_score hamming_distance hinge_loss jaccard_index logauc
            matthews_corrcoef multiclass_accuracy multiclass_auroc multiclass_average_precision
            multiclass_calibration_error multiclass_cohen_kappa multiclass_confusion_matrix
            multiclass_eer multiclass_exact_match multiclass_f1_score multiclass_fbeta_score
            multiclass_hamming_distance multiclass_hinge_loss multiclass_jaccard_index
            multiclass_logauc multiclass_matthews_corrcoef multiclass_negative_predictive_value
            multiclass_precision multiclass_precision_at_fixed_recall
            multiclass_precision_recall_curve multiclass_recall multiclass_recall_at_fixed_precision
            multiclass_roc multiclass_sensitivity_at_specificity multiclass_specificity
            multiclass_specificity_at_sensitivity multiclass_stat_scores multilabel_accuracy
            multilabel_auroc multilabel_average_precision multilabel_confusion_matrix
            multilabel_coverage_error multilabel_eer multilabel_exact_match multilabel_f1_score
            multilabel_fbeta_score multilabel_hamming_distance multilabel_jaccard_index
            multilabel_logauc multilabel_matthews_corrcoef multilabel_negative_predictive_value
            multilabel_precision multilabel_precision_at_fixed_recall
            multilabel_precision_recall_curve multilabel_ranking_average_precision
            multilabel_ranking_loss multilabel_recall multilabel_recall_at_fixed_precision
            multilabel_roc multilabel_sensitivity_at_specificity multilabel_specificity
            multilabel_specificity_at_sensitivity multilabel_stat_scores negative_predictive_value
            precision precision_at_fixed_recall precision_recall_curve recall
            recall_at_fixed_precision roc sensitivity_at_specificity specificity
            specificity_at_sensitivity stat_scores
        """,
        "syncfree.functional.image": """
            arniqa deep_image_structure_and_texture_similarity
            error_relative_global_dimensionless_synthesis image_gradients
            learned_perceptual_image_patch_similarity multiscale_structural_similarity_index_measure
            peak_signal_noise_ratio peak_signal_noise_ratio_with_blocked_effect
            perceptual_path_length quality_with_no_reference relative_average_spectral_error
            root_mean_squared_error_using_sliding_window spatial_correlation_coefficient
            spatial_distortion_index spectral_angle_mapper spectral_distortion_index
            structural_similarity_index_measure total_variation universal_image_quality_index
            visual_information_fidelity
        """,
    }.items()
}
